// Kernels and launches of the cuda backend.
#include "driver/cuda.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

namespace trident::driver {
namespace {

constexpr uint32_t kWarpSize = 32;
constexpr uint32_t kSharedWithoutOptin = 48 * 1024;
constexpr uint32_t kPortableClusterSize = 8;
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr uint64_t kMaxGridX = std::numeric_limits<int32_t>::max();
constexpr uint32_t kMaxGridYZ = 65535;
// What PyTorch's allocator gives without being asked.
constexpr uint64_t kAllocatorAlignment = 256;

// A kernel takes the addresses of two scratch buffers after its own parameters, needed or not.
const uint64_t kNoScratch = 0;

// A scratch buffer for one launch; lives until the launch is enqueued, which is enough because
// PyTorch's allocator reuses memory in the order of the stream.
class Scratch {
 public:
  Scratch(const CudaLibrary& library, uint64_t bytes, uint64_t alignment) {
    if (bytes == 0) return;
    const uint64_t padding = alignment > kAllocatorAlignment ? alignment : 0;
    memory_ = library.allocate_scratch(bytes + padding);
    address_ = reinterpret_cast<uint64_t>(memory_.get());
    if (padding != 0) address_ = (address_ + alignment - 1) / alignment * alignment;
  }
  void* param() { return &address_; }

 private:
  c10::DataPtr memory_;
  uint64_t address_ = 0;
};

}  // namespace

CudaKernel::CudaKernel(CudaLibrary& library, CudaKernelSpec spec)
    : Kernel(kBackend, std::move(spec.label), std::move(spec.params)),
      library_(library),
      spec_(std::move(spec)) {
  TORCH_CHECK_VALUE(!spec_.cubin.empty(), "kernel ", label(), " has an empty cubin");
  TORCH_CHECK_VALUE(spec_.num_warps >= 1 && spec_.num_ctas >= 1, "kernel ", label(),
                    " has num_warps=", spec_.num_warps, " and num_ctas=", spec_.num_ctas);
  check_tensor_maps();
  image_ = library_.intern(std::exchange(spec_.cubin, {}));

  const auto add = [this](cuda::AttributeId id) -> cuda::LaunchAttribute& {
    cuda::LaunchAttribute& attribute = attributes_[num_attributes_++];
    attribute.id = id;
    return attribute;
  };
  if (spec_.launch_pdl) add(cuda::AttributeId::kProgrammaticStreamSerialization).value.number = 1;
  if (spec_.cooperative) add(cuda::AttributeId::kCooperative).value.number = 1;

  std::array<uint32_t, 3>& cluster = spec_.cluster;
  if (cluster == std::array<uint32_t, 3>{1, 1, 1}) cluster[0] = spec_.num_ctas;
  TORCH_CHECK_VALUE(uint64_t{cluster[0]} * cluster[1] * cluster[2] == spec_.num_ctas, "kernel ",
                    label(), " has num_ctas=", spec_.num_ctas, " but a cluster of ",
                    grid_text(cluster.data()));
  if (spec_.num_ctas != 1) {
    auto& dimension = add(cuda::AttributeId::kClusterDimension).value.cluster;
    dimension.x = cluster[0];
    dimension.y = cluster[1];
    dimension.z = cluster[2];
    add(cuda::AttributeId::kClusterSchedulingPolicyPreference).value.number =
        cuda::kClusterSchedulingSpread;
  }
}

void CudaKernel::check_tensor_maps() const {
  size_t found = 0;
  for (size_t param = 0; param < kinds().size(); ++param) {
    if (kinds()[param] != ParamKind::kTensorMap) continue;
    TORCH_CHECK_VALUE(found < spec_.tensor_maps.size() && spec_.tensor_maps[found].param == param,
                      "kernel ", label(), " has no tensor map for parameter ", param);
    const size_t rank = spec_.tensor_maps[found].block.size();
    TORCH_CHECK_VALUE(rank >= 1 && rank <= kMaxTensorMapRank && param + 2 * rank < kinds().size(),
                      "kernel ", label(), " has a tensor map of rank ", rank);
    for (size_t axis = 1; axis <= rank; ++axis) {
      TORCH_CHECK_VALUE(kinds()[param + axis] == ParamKind::kInt32 &&
                            kinds()[param + rank + axis] == ParamKind::kInt64,
                        "kernel ", label(), " passes other sizes than those of a tensor map");
    }
    ++found;
  }
  TORCH_CHECK_VALUE(found == spec_.tensor_maps.size(), "kernel ", label(), " has ",
                    spec_.tensor_maps.size(), " tensor maps for ", found, " parameters");
}

cuda::Function CudaKernel::function(int device) {
  TORCH_CHECK_VALUE(device >= 0, "kernel ", label(), " cannot be loaded on CUDA device ", device);
  const std::lock_guard lock(mutex_);
  if (functions_.size() <= static_cast<size_t>(device)) functions_.resize(device + 1, nullptr);
  cuda::Function& known = functions_[device];
  if (known == nullptr) {
    const cuda::Function loaded = library_.load(image_, spec_.name, device, label());
    configure(loaded, device);
    known = loaded;
  }
  return known;
}

void CudaKernel::configure(cuda::Function function, int device) {
  const cuda::CudaApi& api = library_.api();
  const std::string about = "kernel " + label();

  cuda::Device handle = 0;
  int max_shared = 0;
  library_.check(api.device_get(&handle, device), "cuDeviceGet", about);
  library_.check(
      api.device_get_attribute(&max_shared, cuda::kDeviceMaxSharedMemoryPerBlockOptin, handle),
      "cuDeviceGetAttribute", about);
  if (spec_.shared > static_cast<uint32_t>(max_shared)) {
    throw OutOfResources(label(), "shared memory", spec_.shared, max_shared);
  }

  int max_threads = 0;
  library_.check(
      api.function_get_attribute(&max_threads, cuda::kFunctionMaxThreadsPerBlock, function),
      "cuFuncGetAttribute", about);
  if (spec_.num_warps * kWarpSize > static_cast<uint32_t>(max_threads)) {
    throw OutOfResources(label(), "threads", spec_.num_warps * kWarpSize, max_threads);
  }

  if (spec_.shared > kSharedWithoutOptin) {
    library_.check(api.function_set_cache_config(function, cuda::kFunctionCachePreferShared),
                   "cuFuncSetCacheConfig", about);
    library_.check(api.function_set_attribute(function, cuda::kFunctionMaxDynamicSharedSizeBytes,
                                              static_cast<int>(spec_.shared)),
                   "cuFuncSetAttribute", about);
  }
  if (spec_.num_ctas > kPortableClusterSize) {
    library_.check(
        api.function_set_attribute(function, cuda::kFunctionNonPortableClusterSizeAllowed, 1),
        "cuFuncSetAttribute", about);
  }
}

cuda::LaunchConfig CudaKernel::config() {
  cuda::LaunchConfig config{};
  config.block[0] = spec_.num_warps * kWarpSize;
  config.block[1] = config.block[2] = 1;
  config.shared_bytes = spec_.shared;
  config.attributes = num_attributes_ == 0 ? nullptr : attributes_.data();
  config.num_attributes = num_attributes_;
  return config;
}

CudaLaunch::CudaLaunch(CudaKernel& kernel, int device, const uint64_t* values)
    : kernel_(&kernel),
      function_(kernel.function(device)),
      config_(kernel.config()),
      num_ctas_(kernel.spec().num_ctas),
      needs_scratch_(kernel.spec().global_scratch_size != 0 ||
                     kernel.spec().profile_scratch_size != 0),
      values_(values),
      tensor_maps_(kernel.spec().tensor_maps.size()) {
  const size_t count = kernel.kinds().size();
  params_.reserve(count + 2);
  for (size_t index = 0; index < count; ++index)
    params_.push_back(const_cast<uint64_t*>(values + index));
  params_.insert(params_.end(), 2, const_cast<uint64_t*>(&kNoScratch));
  for (size_t index = 0; index < tensor_maps_.size(); ++index)
    params_[kernel.spec().tensor_maps[index].param] = tensor_maps_[index].bytes();
}

void CudaLaunch::run(const uint32_t* grid, cuda::Stream stream) {
  if (grid_is_empty(grid, *kernel_)) return;
  const uint64_t blocks_x = uint64_t{grid[0]} * num_ctas_;
  if (blocks_x > kMaxGridX || grid[1] > kMaxGridYZ || grid[2] > kMaxGridYZ) [[unlikely]] {
    // What the driver would say, with more words.
    TORCH_CHECK(false, "Triton Error [CUDA]: invalid argument: kernel ", kernel_->label(),
                " cannot be launched over the grid ", grid_text(grid), ": CUDA allows at most (",
                kMaxGridX / num_ctas_, ", ", kMaxGridYZ, ", ", kMaxGridYZ, ")");
  }
  config_.grid[0] = static_cast<uint32_t>(blocks_x);
  config_.grid[1] = grid[1];
  config_.grid[2] = grid[2];
  config_.stream = stream;
  if (!tensor_maps_.empty()) [[unlikely]]
    update_tensor_maps();
  if (needs_scratch_) [[unlikely]] {
    run_with_scratch(grid);
  } else {
    enqueue(grid);
  }
}

void CudaLaunch::update_tensor_maps() {
  const std::vector<TensorMapSpec>& specs = kernel_->spec().tensor_maps;
  for (size_t index = 0; index < specs.size(); ++index)
    tensor_maps_[index].update(kernel_->library(), specs[index], values_, kernel_->label());
}

void CudaLaunch::run_with_scratch(const uint32_t* grid) {
  const CudaKernelSpec& spec = kernel_->spec();
  const uint64_t programs = uint64_t{config_.grid[0]} * grid[1] * grid[2];
  Scratch global(kernel_->library(), programs * spec.global_scratch_size,
                 spec.global_scratch_align);
  Scratch profile(kernel_->library(), programs * spec.profile_scratch_size,
                  spec.profile_scratch_align);
  params_[params_.size() - 2] = global.param();
  params_[params_.size() - 1] = profile.param();
  enqueue(grid);
}

void CudaLaunch::enqueue(const uint32_t* grid) {
  const CudaLibrary& library = kernel_->library();
  const cuda::Result result =
      library.api().launch_kernel(&config_, function_, params_.data(), nullptr);
  if (result != cuda::kSuccess) [[unlikely]] {
    library.check(result, "cuLaunchKernelEx",
                  "kernel " + kernel_->label() + ", grid " + grid_text(grid));
  }
}

}  // namespace trident::driver
