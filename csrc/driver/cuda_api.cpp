// Finds CUDA's driver library at run time, so that one build works with and without a GPU.
#include "driver/cuda_api.h"

#include <dlfcn.h>

namespace trident::driver::cuda {
namespace {

template <typename Pointer>
bool find(void* library, const char* symbol, Pointer& target, std::string& reason) {
  target = reinterpret_cast<Pointer>(dlsym(library, symbol));
  if (target == nullptr) {
    reason = std::string("libcuda.so.1 has no ") + symbol +
             "; Trident needs a driver of CUDA 12 or newer";
  }
  return target != nullptr;
}

}  // namespace

bool load_cuda_api(CudaApi& api, std::string& reason) {
  // Never closed: PyTorch uses the same library until the process ends.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason = dlerror();
    return false;
  }
  api.tensor_map_encode_tiled = reinterpret_cast<decltype(api.tensor_map_encode_tiled)>(
      dlsym(library, "cuTensorMapEncodeTiled"));
  return find(library, "cuInit", api.init, reason) &&
         find(library, "cuGetErrorName", api.get_error_name, reason) &&
         find(library, "cuGetErrorString", api.get_error_string, reason) &&
         find(library, "cuDeviceGet", api.device_get, reason) &&
         find(library, "cuDeviceGetCount", api.device_get_count, reason) &&
         find(library, "cuDeviceGetAttribute", api.device_get_attribute, reason) &&
         find(library, "cuDevicePrimaryCtxRetain", api.primary_context_retain, reason) &&
         find(library, "cuCtxGetCurrent", api.context_get_current, reason) &&
         find(library, "cuCtxSetCurrent", api.context_set_current, reason) &&
         find(library, "cuCtxPushCurrent_v2", api.context_push, reason) &&
         find(library, "cuCtxPopCurrent_v2", api.context_pop, reason) &&
         find(library, "cuModuleLoadData", api.module_load_data, reason) &&
         find(library, "cuModuleGetFunction", api.module_get_function, reason) &&
         find(library, "cuFuncGetAttribute", api.function_get_attribute, reason) &&
         find(library, "cuFuncSetAttribute", api.function_set_attribute, reason) &&
         find(library, "cuFuncSetCacheConfig", api.function_set_cache_config, reason) &&
         find(library, "cuStreamIsCapturing", api.stream_is_capturing, reason) &&
         find(library, "cuStreamGetCaptureInfo_v2", api.stream_get_capture_info, reason) &&
         find(library, "cuThreadExchangeStreamCaptureMode", api.thread_exchange_capture_mode,
              reason) &&
         find(library, "cuGraphGetNodes", api.graph_get_nodes, reason) &&
         find(library, "cuGraphInstantiateWithFlags", api.graph_instantiate, reason) &&
         find(library, "cuGraphExecDestroy", api.graph_exec_destroy, reason) &&
         find(library, "cuGraphLaunch", api.graph_launch, reason) &&
         find(library, "cuGraphKernelNodeGetParams_v2", api.graph_kernel_node_get_params, reason) &&
         find(library, "cuGraphKernelNodeSetParams_v2", api.graph_kernel_node_set_params, reason) &&
         find(library, "cuGraphExecKernelNodeSetParams_v2", api.graph_exec_kernel_node_set_params,
              reason) &&
         find(library, "cuLaunchKernelEx", api.launch_kernel, reason);
}

}  // namespace trident::driver::cuda
