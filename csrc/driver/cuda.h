// The cuda backend: cubins loaded and launched through CUDA's driver API.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "driver/cuda_api.h"
#include "driver/kernel.h"
#include "driver/tensor_map.h"

namespace trident::driver {

// Device memory for one launch, on the current stream of the current device.
using ScratchAllocator = std::function<c10::DataPtr(size_t bytes)>;

// The driver library with what has been loaded into it. Modules are shared by content and stay
// loaded until the process ends: a CUDA graph that a user captured may still hold their functions.
class CudaLibrary {
 public:
  CudaLibrary(const cuda::CudaApi& api, ScratchAllocator scratch);

  // The process's libcuda; RuntimeError with the reason where it cannot be loaded.
  static CudaLibrary& instance();
  // Whether libcuda can be loaded and sees a device.
  static bool available();

  const cuda::CudaApi& api() const { return api_; }
  c10::DataPtr allocate_scratch(size_t bytes) const { return scratch_(bytes); }

  // Throws a RuntimeError that reads like Triton's own unless `result` is a success.
  void check(cuda::Result result, const char* call, std::string_view about) const {
    if (result != cuda::kSuccess) [[unlikely]]
      fail(result, call, about);
  }

  // A copy of `image` that lives as long as the library; equal images give the same address.
  const std::string* intern(std::string image);

  // The function `name` of an interned image on a device; loads the module at first use.
  cuda::Function load(const std::string* image, const std::string& name, int device,
                      const std::string& label);

  // Makes the device's primary context current in a thread that has none. The CUDA runtime takes
  // "no context" for device 0 and binds one at its first call; the driver refuses to launch.
  void ensure_context(int device) const;

  // Whether what is enqueued on a stream goes into a graph; never for NULL, the default stream, which
  // cannot be captured. The calling thread needs a context.
  bool is_capturing(cuda::Stream stream) const;
  // The node of what was enqueued last on a stream that is being captured.
  cuda::GraphNode last_captured(cuda::Stream stream) const;

 private:
  [[noreturn]] void fail(cuda::Result result, const char* call, std::string_view about) const;

  cuda::CudaApi api_;
  ScratchAllocator scratch_;
  std::mutex mutex_;
  std::unordered_set<std::string> images_;
  std::map<std::pair<const std::string*, int>, cuda::Module> modules_;
};

// What Triton's compiler says about a cubin. Sizes are in bytes; scratch sizes are per program.
struct CudaKernelSpec {
  std::string cubin;
  std::string name;  // of the function in the cubin
  std::string label;
  std::vector<std::string> params;
  uint32_t shared = 0;
  uint32_t num_warps = 4;
  uint32_t num_ctas = 1;
  std::array<uint32_t, 3> cluster = {1, 1, 1};
  bool launch_pdl = false;
  bool cooperative = false;
  uint64_t global_scratch_size = 0;
  uint64_t global_scratch_align = 1;
  uint64_t profile_scratch_size = 0;
  uint64_t profile_scratch_align = 1;
  std::vector<TensorMapSpec> tensor_maps{};  // one per parameter of type "nvTmaDesc", in order
};

class CudaLaunch;

class CudaKernel final : public Kernel {
 public:
  using Launch = CudaLaunch;
  static constexpr Backend kBackend = Backend::kCuda;

  CudaKernel(CudaLibrary& library, CudaKernelSpec spec);

  void load(int device) override { function(device); }

  // The kernel's function on a device, with its attributes set.
  cuda::Function function(int device);

  CudaLibrary& library() const { return library_; }
  const CudaKernelSpec& spec() const { return spec_; }
  // A launch configuration without grid and stream. It refers to attributes of this kernel.
  cuda::LaunchConfig config();

 private:
  void check_tensor_maps() const;
  void configure(cuda::Function function, int device);

  CudaLibrary& library_;
  CudaKernelSpec spec_;  // its cubin is empty: the library holds the image
  const std::string* image_;
  std::array<cuda::LaunchAttribute, 4> attributes_{};
  uint32_t num_attributes_ = 0;
  std::mutex mutex_;
  std::vector<cuda::Function> functions_;  // by device
};

// One launch of a kernel with everything prebuilt that does not change from call to call.
class CudaLaunch {
 public:
  // `values`: one slot per parameter; must outlive the launch object.
  CudaLaunch(CudaKernel& kernel, int device, const uint64_t* values);

  // Enqueues on `stream`, with the kernel's device current.
  void run(const uint32_t* grid, cuda::Stream stream);

  // How many parameters the driver is given.
  size_t num_params() const { return params_.size(); }

 private:
  void update_tensor_maps();
  void run_with_scratch(const uint32_t* grid);
  void enqueue(const uint32_t* grid);

  CudaKernel* kernel_;
  cuda::Function function_;
  cuda::LaunchConfig config_;
  uint32_t num_ctas_;
  bool needs_scratch_;
  const uint64_t* values_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<void*> params_;
};

}  // namespace trident::driver
