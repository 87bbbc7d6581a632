// The driver seam: packing, attributes, limits and return codes, over a driver that records.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "errors.h"
#include "fake_cuda.h"

namespace trident::test {
namespace {

using driver::CudaKernel;
using driver::CudaKernelSpec;
using driver::CudaLaunch;
using driver::cuda::AttributeId;

const uint32_t kGrid[3] = {5, 3, 2};
void* const kStream = reinterpret_cast<void*>(0x5757);

CudaKernelSpec spec(size_t num_params = 0) {
  return {.cubin = "cubin",
          .name = "add_kernel",
          .label = "add",
          .params = std::vector<std::string>(num_params, "*fp32")};
}

class CudaDriver : public ::testing::Test {
 protected:
  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library = fake.library();
};

class ParameterCounts : public CudaDriver, public ::testing::WithParamInterface<size_t> {};

TEST_P(ParameterCounts, values_arrive_in_order_with_two_scratch_addresses_behind) {
  const size_t count = GetParam();
  CudaKernel kernel(*library, spec(count));
  std::vector<uint64_t> values(count);
  CudaLaunch launch(kernel, 0, values.data());
  for (size_t index = 0; index < count; ++index) values[index] = 0x1234567800000000u + index;
  fake.expect_params(count);
  launch.run(kGrid, kStream);

  std::vector<uint64_t> expected = values;
  expected.insert(expected.end(), 2, 0);
  ASSERT_EQ(fake.launches().size(), 1u);
  EXPECT_EQ(fake.launches()[0].values, expected);
}

INSTANTIATE_TEST_SUITE_P(AroundPowersOfTwo, ParameterCounts,
                         ::testing::Values(0, 1, 64, 65, 128, 129));

TEST_F(CudaDriver, grid_block_shared_memory_and_stream_are_configured) {
  CudaKernelSpec s = spec();
  s.num_warps = 8;
  s.shared = 4096;
  CudaKernel kernel(*library, s);
  CudaLaunch launch(kernel, 0, nullptr);
  launch.run(kGrid, kStream);

  ASSERT_EQ(fake.launches().size(), 1u);
  const driver::cuda::LaunchConfig& config = fake.launches()[0].config;
  EXPECT_EQ(std::vector<uint32_t>(config.grid, config.grid + 3), (std::vector<uint32_t>{5, 3, 2}));
  EXPECT_EQ(std::vector<uint32_t>(config.block, config.block + 3),
            (std::vector<uint32_t>{256, 1, 1}));
  EXPECT_EQ(config.shared_bytes, 4096u);
  EXPECT_EQ(config.stream, kStream);
  EXPECT_EQ(config.num_attributes, 0u);
  EXPECT_EQ(fake.count("function_set_cache_config"), 0u);
}

TEST_F(CudaDriver, a_launch_can_move_to_another_grid_and_stream) {
  CudaKernel kernel(*library, spec());
  CudaLaunch launch(kernel, 0, nullptr);
  launch.run(kGrid, kStream);
  const uint32_t other[3] = {7, 1, 1};
  launch.run(other, nullptr);
  ASSERT_EQ(fake.launches().size(), 2u);
  EXPECT_EQ(fake.launches()[1].config.grid[0], 7u);
  EXPECT_EQ(fake.launches()[1].config.stream, nullptr);
}

TEST_F(CudaDriver, clusters_multiply_the_grid_and_set_attributes) {
  CudaKernelSpec s = spec();
  s.num_ctas = 4;
  CudaKernel kernel(*library, s);
  CudaLaunch launch(kernel, 0, nullptr);
  launch.run(kGrid, kStream);

  const RecordedLaunch& seen = fake.launches().at(0);
  EXPECT_EQ(seen.config.grid[0], 20u);
  ASSERT_EQ(seen.attributes.size(), 2u);
  EXPECT_EQ(seen.attributes[0].id, AttributeId::kClusterDimension);
  EXPECT_EQ(seen.attributes[0].value.cluster.x, 4u);
  EXPECT_EQ(seen.attributes[0].value.cluster.y, 1u);
  EXPECT_EQ(seen.attributes[0].value.cluster.z, 1u);
  EXPECT_EQ(seen.attributes[1].id, AttributeId::kClusterSchedulingPolicyPreference);
  EXPECT_EQ(seen.attributes[1].value.number, driver::cuda::kClusterSchedulingSpread);
  EXPECT_EQ(fake.count("function_set_attribute 14 1"), 0u);
}

TEST_F(CudaDriver, clusters_of_sixteen_are_allowed_explicitly) {
  CudaKernelSpec s = spec();
  s.num_ctas = 16;
  CudaKernel(*library, s).load(0);
  EXPECT_EQ(fake.count("function_set_attribute 14 1"), 1u);
}

TEST_F(CudaDriver, a_cluster_that_contradicts_num_ctas_is_refused) {
  CudaKernelSpec s = spec();
  s.num_ctas = 2;
  s.cluster = {4, 1, 1};
  EXPECT_THROW(CudaKernel(*library, s), c10::ValueError);
}

TEST_F(CudaDriver, dependent_launch_and_cooperative_grids_are_attributes) {
  CudaKernelSpec s = spec();
  s.launch_pdl = true;
  s.cooperative = true;
  CudaKernel kernel(*library, s);
  CudaLaunch launch(kernel, 0, nullptr);
  launch.run(kGrid, kStream);

  const RecordedLaunch& seen = fake.launches().at(0);
  ASSERT_EQ(seen.attributes.size(), 2u);
  EXPECT_EQ(seen.attributes[0].id, AttributeId::kProgrammaticStreamSerialization);
  EXPECT_EQ(seen.attributes[0].value.number, 1);
  EXPECT_EQ(seen.attributes[1].id, AttributeId::kCooperative);
  EXPECT_EQ(seen.attributes[1].value.number, 1);
}

TEST_F(CudaDriver, more_than_48_kib_of_shared_memory_are_requested_once_per_device) {
  CudaKernelSpec s = spec();
  s.shared = 48 * 1024 + 16;
  CudaKernel kernel(*library, s);
  for (int device : {0, 0, 1}) CudaLaunch(kernel, device, nullptr).run(kGrid, kStream);
  EXPECT_EQ(fake.count("function_set_attribute 8 49168"), 2u);
  EXPECT_EQ(fake.count("module_load_data"), 2u);
  EXPECT_EQ(fake.context_depth(), 0);
}

TEST_F(CudaDriver, more_shared_memory_than_the_device_has_is_out_of_resources) {
  fake.set_max_shared(100 * 1024);
  CudaKernelSpec s = spec();
  s.shared = 128 * 1024;
  CudaKernel kernel(*library, s);
  const std::string message = message_of<driver::OutOfResources>([&] { kernel.load(0); });
  EXPECT_NE(
      message.find("out of resource: shared memory, Required: 131072, Hardware limit: 102400"),
      std::string::npos)
      << message;
}

TEST_F(CudaDriver, more_threads_than_the_function_allows_are_out_of_resources) {
  CudaKernelSpec s = spec();
  s.num_warps = 64;
  CudaKernel kernel(*library, s);
  EXPECT_THROW(kernel.load(0), driver::OutOfResources);
}

TEST_F(CudaDriver, equal_cubins_are_loaded_once) {
  CudaKernel first(*library, spec());
  CudaKernel second(*library, spec());
  EXPECT_EQ(first.function(0), second.function(0));
  EXPECT_EQ(fake.count("module_load_data"), 1u);
}

TEST_F(CudaDriver, a_thread_without_a_context_gets_the_primary_one_of_the_device) {
  library->ensure_context(1);
  EXPECT_EQ(fake.current_context(), 0x101u);
  library->ensure_context(0);  // the thread has one: it stays
  EXPECT_EQ(fake.current_context(), 0x101u);
}

TEST_F(CudaDriver, the_default_stream_is_never_captured) {
  fake.capture_up_to({});
  EXPECT_TRUE(library->is_capturing(kStream));
  EXPECT_FALSE(library->is_capturing(nullptr));
}

TEST_F(CudaDriver, an_empty_grid_is_no_launch) {
  CudaKernel kernel(*library, spec());
  CudaLaunch launch(kernel, 0, nullptr);
  for (const auto& grid : {std::array<uint32_t, 3>{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    launch.run(grid.data(), kStream);
  EXPECT_TRUE(fake.launches().empty());
}

TEST_F(CudaDriver, impossible_grids_name_kernel_and_grid) {
  CudaKernelSpec s = spec();
  s.num_ctas = 2;
  CudaKernel kernel(*library, s);
  CudaLaunch launch(kernel, 0, nullptr);
  const std::array<uint32_t, 3> negative = {static_cast<uint32_t>(-4), 1, 1};
  const std::array<uint32_t, 3> tall = {1, 65536, 1};
  const std::array<uint32_t, 3> wide = {0x40000000, 1, 1};  // fits, but not twice
  for (const auto& grid : {negative, tall, wide}) {
    const std::string message = message_of<c10::Error>([&] { launch.run(grid.data(), kStream); });
    EXPECT_NE(message.find("kernel add cannot be launched over the grid " +
                           driver::grid_text(grid.data())),
              std::string::npos)
        << message;
  }
  EXPECT_TRUE(fake.launches().empty());
}

TEST_F(CudaDriver, a_failed_launch_raises_and_the_next_one_works) {
  CudaKernel kernel(*library, spec());
  CudaLaunch launch(kernel, 0, nullptr);
  fake.fail_next("launch_kernel", 701);
  const std::string message = message_of<std::runtime_error>([&] { launch.run(kGrid, kStream); });
  EXPECT_EQ(message,
            "Triton Error [CUDA]: a fake failure (CUDA_ERROR_FAKE from cuLaunchKernelEx, kernel "
            "add, grid (5, 3, 2))");
  launch.run(kGrid, kStream);
  EXPECT_EQ(fake.launches().size(), 1u);
}

class FailingEntry : public CudaDriver, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingEntry, a_failed_load_raises_and_can_be_repeated) {
  CudaKernelSpec s = spec();
  s.shared = 64 * 1024;
  CudaKernel kernel(*library, s);
  fake.fail_next(GetParam(), 2);
  EXPECT_THROW(kernel.load(0), std::runtime_error);
  CudaLaunch(kernel, 0, nullptr).run(kGrid, kStream);
  EXPECT_EQ(fake.launches().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Load, FailingEntry,
                         ::testing::Values("device_get", "primary_context_retain", "context_push",
                                           "module_load_data", "module_get_function",
                                           "device_get_attribute", "function_get_attribute",
                                           "function_set_cache_config", "function_set_attribute"));

TEST_F(CudaDriver, scratch_scales_with_the_grid_and_is_aligned) {
  CudaKernelSpec s = spec(1);
  s.num_ctas = 2;
  s.global_scratch_size = 128;
  s.global_scratch_align = 4096;
  s.profile_scratch_size = 16;
  CudaKernel kernel(*library, s);
  const uint64_t value = 42;
  CudaLaunch launch(kernel, 0, &value);
  fake.expect_params(1);
  launch.run(kGrid, kStream);

  ASSERT_EQ(fake.scratch_bytes(),
            (std::vector<size_t>{5 * 3 * 2 * 2 * 128 + 4096, 5 * 3 * 2 * 2 * 16}));
  const std::vector<uint64_t>& values = fake.launches().at(0).values;
  EXPECT_EQ(values[0], 42u);
  EXPECT_NE(values[1], 0u);
  EXPECT_EQ(values[1] % 4096, 0u);
  EXPECT_NE(values[2], 0u);
}

CudaKernelSpec with_tensor_map() {
  CudaKernelSpec s = spec();
  s.params = {"*fp32", "nvTmaDesc", "i32", "i32", "i64", "i64", "i32"};
  s.tensor_maps = {{.param = 1,
                    .swizzle = 3,
                    .element_type = 6,
                    .element_bytes = 2,
                    .nan_fill = true,
                    .block = {32, 64}}};
  return s;
}

TEST_F(CudaDriver, tensor_maps_are_encoded_where_their_values_changed) {
  CudaKernel kernel(*library, with_tensor_map());
  std::vector<uint64_t> values = {0x10, 0x4000, 100, 200, 256, 1, 7};
  CudaLaunch original(kernel, 0, values.data());
  CudaLaunch launch = std::move(original);  // as frames do
  fake.expect_params(values.size());
  launch.run(kGrid, kStream);
  launch.run(kGrid, kStream);
  values[6] = 8;
  launch.run(kGrid, kStream);

  ASSERT_EQ(fake.tensor_maps().size(), 1u);
  const RecordedTensorMap& map = fake.tensor_maps()[0];
  EXPECT_EQ(map.type, 6);
  EXPECT_EQ(map.swizzle, 3);
  EXPECT_EQ(map.fill, driver::cuda::kTensorMapFillNan);
  EXPECT_EQ(map.address, 0x4000u);
  EXPECT_EQ(map.sizes, (std::vector<uint64_t>{200, 100}));
  EXPECT_EQ(map.strides, (std::vector<uint64_t>{512}));  // bytes
  EXPECT_EQ(map.block, (std::vector<uint32_t>{64, 32}));
  // The kernel takes the map itself, then sizes and strides.
  EXPECT_EQ(fake.launches()[2].values,
            (std::vector<uint64_t>{0x10, 0xde5c0001, 100, 200, 256, 1, 8, 0, 0}));

  values[1] = 0x8000;
  launch.run(kGrid, kStream);
  values[3] = 300;
  launch.run(kGrid, kStream);
  ASSERT_EQ(fake.tensor_maps().size(), 3u);
  EXPECT_EQ(fake.tensor_maps()[1].address, 0x8000u);
  EXPECT_EQ(fake.tensor_maps()[2].sizes, (std::vector<uint64_t>{300, 100}));
  EXPECT_EQ(fake.launches()[4].values[1], 0xde5c0003u);
}

TEST_F(CudaDriver, a_refused_tensor_map_raises_and_is_encoded_anew) {
  CudaKernel kernel(*library, with_tensor_map());
  const std::vector<uint64_t> values = {0x10, 0x4000, 100, 200, 256, 1, 7};
  CudaLaunch launch(kernel, 0, values.data());
  fake.fail_next("tensor_map_encode_tiled", 1);
  const std::string message = message_of<std::runtime_error>([&] { launch.run(kGrid, kStream); });
  EXPECT_NE(message.find("Failed to create tensor map descriptor: kernel add"), std::string::npos);
  EXPECT_TRUE(fake.launches().empty());
  launch.run(kGrid, kStream);
  EXPECT_EQ(fake.launches().size(), 1u);
}

TEST_F(CudaDriver, innermost_sizes_of_packed_fp4_count_elements) {
  CudaKernelSpec s = spec();
  s.params = {"nvTmaDesc", "i32", "i64"};
  s.tensor_maps = {{.param = 0, .element_bytes = 1, .packed_fp4 = true, .block = {64}}};
  CudaKernel kernel(*library, s);
  const std::vector<uint64_t> values = {0x4000, 100, 1};
  CudaLaunch(kernel, 0, values.data()).run(kGrid, kStream);
  EXPECT_EQ(fake.tensor_maps().at(0).sizes, (std::vector<uint64_t>{200}));
  EXPECT_TRUE(fake.tensor_maps()[0].strides.empty());
}

TEST_F(CudaDriver, tensor_maps_have_to_fit_the_parameters) {
  CudaKernelSpec missing = with_tensor_map();
  missing.tensor_maps.clear();
  EXPECT_THROW(CudaKernel(*library, missing), c10::ValueError);
  CudaKernelSpec moved = with_tensor_map();
  moved.tensor_maps[0].param = 2;
  EXPECT_THROW(CudaKernel(*library, moved), c10::ValueError);
  CudaKernelSpec longer = with_tensor_map();
  longer.tensor_maps[0].block = {8, 8, 8};
  EXPECT_THROW(CudaKernel(*library, longer), c10::ValueError);
}

TEST_F(CudaDriver, unknown_parameter_types_are_refused) {
  CudaKernelSpec s = spec();
  s.params = {"i32", "tensordesc<fp16[64, 64]>"};
  EXPECT_THROW(CudaKernel(*library, s), c10::ValueError);
}

}  // namespace
}  // namespace trident::test
