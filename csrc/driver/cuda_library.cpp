// The process's CUDA driver library: loading, modules by content, errors.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include "driver/cuda.h"

namespace trident::driver {
namespace {

struct Loaded {
  std::unique_ptr<CudaLibrary> library;
  std::string reason;  // where there is no library
  bool has_device = false;
};

c10::DataPtr allocate_from_torch(size_t bytes) {
  return at::detail::getCUDAHooks().getCUDADeviceAllocator()->allocate(bytes);
}

Loaded load_library() {
  Loaded loaded;
  cuda::CudaApi api{};
  if (!cuda::load_cuda_api(api, loaded.reason)) return loaded;
  int count = 0;
  const cuda::Result status = api.init(0);
  loaded.has_device =
      status == cuda::kSuccess && api.device_get_count(&count) == cuda::kSuccess && count > 0;
  loaded.library = std::make_unique<CudaLibrary>(api, allocate_from_torch);
  return loaded;
}

Loaded& loaded() {
  // Left to the operating system: kernels may outlive static destruction.
  static Loaded* const instance = new Loaded(load_library());
  return *instance;
}

cuda::Context primary_context(const CudaLibrary& library, int device, std::string_view about) {
  cuda::Device handle = 0;
  cuda::Context context = nullptr;
  library.check(library.api().device_get(&handle, device), "cuDeviceGet", about);
  library.check(library.api().primary_context_retain(&context, handle), "cuDevicePrimaryCtxRetain",
                about);
  return context;
}

// Makes a device's primary context, the one PyTorch uses, current for a scope.
class ContextScope {
 public:
  ContextScope(const CudaLibrary& library, int device, std::string_view about) : library_(library) {
    const cuda::Context context = primary_context(library, device, about);
    library.check(library.api().context_push(context), "cuCtxPushCurrent", about);
  }
  ~ContextScope() {
    cuda::Context context = nullptr;
    library_.api().context_pop(&context);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaLibrary& library_;
};

}  // namespace

CudaLibrary::CudaLibrary(const cuda::CudaApi& api, ScratchAllocator scratch)
    : api_(api), scratch_(std::move(scratch)) {}

CudaLibrary& CudaLibrary::instance() {
  TORCH_CHECK(loaded().library != nullptr, "CUDA kernels need the CUDA driver: ", loaded().reason);
  return *loaded().library;
}

bool CudaLibrary::available() { return loaded().has_device; }

void CudaLibrary::fail(cuda::Result result, const char* call, std::string_view about) const {
  const char* name = nullptr;
  const char* text = nullptr;
  api_.get_error_name(result, &name);
  api_.get_error_string(result, &text);
  throw std::runtime_error(std::string("Triton Error [CUDA]: ") +
                           (text != nullptr ? text : "unknown error") + " (" +
                           (name != nullptr ? name : std::to_string(result).c_str()) + " from " +
                           call + ", " + std::string(about) + ")");
}

const std::string* CudaLibrary::intern(std::string image) {
  const std::lock_guard lock(mutex_);
  return &*images_.insert(std::move(image)).first;
}

cuda::Function CudaLibrary::load(const std::string* image, const std::string& name, int device,
                                 const std::string& label) {
  const std::string about = "kernel " + label;
  const ContextScope scope(*this, device, about);
  const std::lock_guard lock(mutex_);
  cuda::Module& module = modules_[{image, device}];
  if (module == nullptr) {
    check(api_.module_load_data(&module, image->data()), "cuModuleLoadData", about);
  }
  cuda::Function function = nullptr;
  check(api_.module_get_function(&function, module, name.c_str()), "cuModuleGetFunction", about);
  return function;
}

void CudaLibrary::ensure_context(int device) const {
  const std::string_view about = "the calling thread";
  cuda::Context current = nullptr;
  check(api_.context_get_current(&current), "cuCtxGetCurrent", about);
  if (current != nullptr) [[likely]]
    return;
  check(api_.context_set_current(primary_context(*this, device, about)), "cuCtxSetCurrent", about);
}

bool CudaLibrary::is_capturing(cuda::Stream stream) const {
  if (stream == nullptr) return false;
  int status = cuda::kStreamCaptureNone;
  check(api_.stream_is_capturing(stream, &status), "cuStreamIsCapturing", "the current stream");
  return status != cuda::kStreamCaptureNone;
}

cuda::GraphNode CudaLibrary::last_captured(cuda::Stream stream) const {
  int status = cuda::kStreamCaptureNone;
  uint64_t id = 0;
  void* graph = nullptr;
  const cuda::GraphNode* nodes = nullptr;
  size_t count = 0;
  check(api_.stream_get_capture_info(stream, &status, &id, &graph, &nodes, &count),
        "cuStreamGetCaptureInfo", "the current stream");
  TORCH_CHECK(status != cuda::kStreamCaptureNone && count == 1,
              "a launch that is captured does not end in one node of the graph");
  return nodes[0];
}

}  // namespace trident::driver
