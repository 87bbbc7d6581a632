// Trident's own declarations of the CUDA driver against the real cuda.h, where there is one.
#ifdef TRIDENT_TEST_CUDA_H
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "driver/cuda_api.h"

namespace trident::test {
namespace {

using driver::cuda::AttributeId;
using driver::cuda::LaunchAttribute;
using driver::cuda::LaunchConfig;
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(static_cast<int>(AttributeId::kCooperative) == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
static_assert(static_cast<int>(AttributeId::kClusterDimension) ==
              CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(static_cast<int>(AttributeId::kClusterSchedulingPolicyPreference) ==
              CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
static_assert(static_cast<int>(AttributeId::kProgrammaticStreamSerialization) ==
              CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(driver::cuda::kFunctionMaxThreadsPerBlock == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(driver::cuda::kFunctionMaxDynamicSharedSizeBytes ==
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(driver::cuda::kFunctionNonPortableClusterSizeAllowed ==
              CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
static_assert(driver::cuda::kFunctionCachePreferShared == CU_FUNC_CACHE_PREFER_SHARED);
static_assert(driver::cuda::kDeviceMaxSharedMemoryPerBlockOptin ==
              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(driver::cuda::kStreamCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(driver::cuda::kStreamCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(driver::cuda::kGraphAutoFreeOnLaunch ==
              CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
static_assert(driver::cuda::kClusterSchedulingSpread == CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) <= 128);
static_assert(driver::cuda::kTensorMapInterleaveNone == CU_TENSOR_MAP_INTERLEAVE_NONE);
static_assert(driver::cuda::kTensorMapPromoteL2To128Bytes == CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
static_assert(driver::cuda::kTensorMapFillNone == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(driver::cuda::kTensorMapFillNan == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

using driver::cuda::KernelNodeParams;
static_assert(sizeof(KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS));
static_assert(offsetof(KernelNodeParams, grid) == offsetof(CUDA_KERNEL_NODE_PARAMS, gridDimX));
static_assert(offsetof(KernelNodeParams, block) == offsetof(CUDA_KERNEL_NODE_PARAMS, blockDimX));
static_assert(offsetof(KernelNodeParams, shared_bytes) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes));
static_assert(offsetof(KernelNodeParams, params) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS, kernelParams));
static_assert(offsetof(KernelNodeParams, extra) == offsetof(CUDA_KERNEL_NODE_PARAMS, extra));
static_assert(offsetof(KernelNodeParams, kernel) == offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
static_assert(offsetof(KernelNodeParams, context) == offsetof(CUDA_KERNEL_NODE_PARAMS, ctx));

// A value written through the real header is read back through ours.
TEST(CudaDeclarations, the_attribute_union_agrees_with_cuda_h) {
  CUlaunchAttribute real{};
  real.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  real.value.clusterDim.x = 2;
  real.value.clusterDim.y = 3;
  real.value.clusterDim.z = 4;
  LaunchAttribute ours;
  std::memcpy(&ours, &real, sizeof(ours));
  EXPECT_EQ(ours.value.cluster.x, 2u);
  EXPECT_EQ(ours.value.cluster.y, 3u);
  EXPECT_EQ(ours.value.cluster.z, 4u);
}

}  // namespace
}  // namespace trident::test
#endif
