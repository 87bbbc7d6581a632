// The part of CUDA's driver API that Trident uses, declared here so that no CUDA toolkit is needed
// to build: types by their documented layout, entry points as one table of function pointers.
// tests/cpp/test_cuda_declarations.cpp compares sizes, offsets and constants with the real cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trident::driver::cuda {

using Result = int;  // CUresult
using Device = int;  // CUdevice
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = void*;
using GraphNode = struct GraphNodeTag*;

inline constexpr Result kSuccess = 0;
inline constexpr int kFunctionMaxThreadsPerBlock = 0;
inline constexpr int kFunctionMaxDynamicSharedSizeBytes = 8;
inline constexpr int kFunctionNonPortableClusterSizeAllowed = 14;
inline constexpr int kFunctionCachePreferShared = 1;
inline constexpr int kDeviceMaxSharedMemoryPerBlockOptin = 97;
inline constexpr int kStreamCaptureNone = 0;
inline constexpr int kStreamCaptureRelaxed = 2;
inline constexpr uint64_t kGraphAutoFreeOnLaunch = 1;
inline constexpr int kClusterSchedulingSpread = 1;
inline constexpr int kTensorMapInterleaveNone = 0;
inline constexpr int kTensorMapPromoteL2To128Bytes = 2;
inline constexpr int kTensorMapFillNone = 0;
inline constexpr int kTensorMapFillNan = 1;

enum class AttributeId : int {
  kCooperative = 2,
  kClusterDimension = 4,
  kClusterSchedulingPolicyPreference = 5,
  kProgrammaticStreamSerialization = 6,
};

// CUlaunchAttribute: the value is a union of 64 bytes, of which these members are used.
struct LaunchAttribute {
  AttributeId id;
  alignas(8) union {
    int number;
    struct {
      uint32_t x, y, z;
    } cluster;
    char pad[64];
  } value;
};

// CUlaunchConfig.
struct LaunchConfig {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  uint32_t num_attributes;
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNodeParams {
  Function function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  void** params;
  void** extra;
  void* kernel;
  Context context;
};

// The driver's entry points. A test puts functions of its own here.
struct CudaApi {
  Result (*init)(unsigned flags);
  Result (*get_error_name)(Result, const char**);
  Result (*get_error_string)(Result, const char**);
  Result (*device_get)(Device*, int ordinal);
  Result (*device_get_count)(int*);
  Result (*device_get_attribute)(int*, int attribute, Device);
  Result (*primary_context_retain)(Context*, Device);
  Result (*context_get_current)(Context*);
  Result (*context_set_current)(Context);
  Result (*context_push)(Context);
  Result (*context_pop)(Context*);
  Result (*module_load_data)(Module*, const void* image);
  Result (*module_get_function)(Function*, Module, const char* name);
  Result (*function_get_attribute)(int*, int attribute, Function);
  Result (*function_set_attribute)(Function, int attribute, int value);
  Result (*function_set_cache_config)(Function, int config);
  Result (*stream_is_capturing)(Stream, int* status);
  // `nodes`: what the next node captured on the stream depends on, owned by the driver.
  Result (*stream_get_capture_info)(Stream, int* status, uint64_t* id, void** graph,
                                    const GraphNode** nodes, size_t* count);
  Result (*thread_exchange_capture_mode)(int* mode);
  Result (*graph_get_nodes)(void* graph, GraphNode* nodes, size_t* count);
  Result (*graph_instantiate)(void** exec, void* graph, uint64_t flags);
  Result (*graph_exec_destroy)(void* exec);
  Result (*graph_launch)(void* exec, Stream);
  Result (*graph_kernel_node_get_params)(GraphNode, KernelNodeParams*);
  Result (*graph_kernel_node_set_params)(GraphNode, const KernelNodeParams*);
  Result (*graph_exec_kernel_node_set_params)(void* exec, GraphNode, const KernelNodeParams*);
  // Of Hopper and newer; null where the driver does not have it.
  Result (*tensor_map_encode_tiled)(void* map, int type, uint32_t rank, void* address,
                                    const uint64_t* sizes, const uint64_t* strides,
                                    const uint32_t* block, const uint32_t* element_strides,
                                    int interleave, int swizzle, int l2_promotion, int fill);
  Result (*launch_kernel)(const LaunchConfig*, Function, void** params, void** extra);
};

// Fills `api` from libcuda.so.1. Returns false, with the reason in `reason`, where the library or
// one of its entry points is missing.
bool load_cuda_api(CudaApi& api, std::string& reason);

}  // namespace trident::driver::cuda
