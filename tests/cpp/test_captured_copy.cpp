// Copies in a captured graph: launches whose moved side is known by its parameter.
#include <gtest/gtest.h>

#include <optional>

#include "abi/abi.h"
#include "errors.h"
#include "fake_cuda.h"
#include "host/captured_copy.h"

namespace trident::test {
namespace {

using host::CapturedLaunch;
using host::MovedSide;

class CapturedCopy : public testing::Test {
 protected:
  CapturedCopy() {
    fake.set_graph({FakeNode{{}}, FakeNode{{}}});
    fake.capture_up_to({1});
    library = fake.library();
    kernel.emplace(
        *library,
        driver::CudaKernelSpec{
            .cubin = "cubin", .name = "copy", .label = "copy", .params = {"*i32", "*i32", "i32"}});
    fake.expect_params(3);
  }
  CapturedLaunch copy(MovedSide moved) {
    return host::capture_copy(*kernel, 0, reinterpret_cast<driver::cuda::Stream>(0x57),
                              {0x1000, 0x2000, 40, 3}, moved);
  }
  void expect_moved(const CapturedLaunch& noted, const CapturedLaunch::Pointer& expected) {
    EXPECT_EQ(noted.node, fake.node(1));
    EXPECT_EQ(noted.num_params, 5u);
    ASSERT_EQ(noted.pointers.size(), 1u);
    EXPECT_EQ(noted.pointers[0].source, expected.source);
    EXPECT_EQ(noted.pointers[0].index, expected.index);
    EXPECT_EQ(noted.pointers[0].param, expected.param);
    EXPECT_EQ(noted.pointers[0].address, expected.address);
  }

  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library;
  std::optional<driver::CudaKernel> kernel;
};

TEST_F(CapturedCopy, launches_over_the_rows_from_one_address_to_the_other) {
  copy({TRIDENT_PARAM_INPUT, 0});
  ASSERT_EQ(fake.launches().size(), 1u);
  EXPECT_EQ(fake.launches()[0].values, (std::vector<uint64_t>{0x1000, 0x2000, 40, 0, 0}));
  EXPECT_EQ(fake.launches()[0].config.grid[0], 3u);
}

TEST_F(CapturedCopy, of_an_input_is_moved_by_what_it_reads) {
  expect_moved(copy({TRIDENT_PARAM_INPUT, 4}), {TRIDENT_PARAM_INPUT, 4, 1, 0x2000});
}

TEST_F(CapturedCopy, to_an_output_is_moved_by_what_it_writes) {
  expect_moved(copy({TRIDENT_PARAM_OUTPUT, 2}), {TRIDENT_PARAM_OUTPUT, 2, 0, 0x1000});
}

TEST_F(CapturedCopy, by_another_kind_of_kernel_is_refused) {
  kernel.emplace(*library, driver::CudaKernelSpec{
                               .cubin = "cubin", .name = "f", .label = "f", .params = {"*i32"}});
  EXPECT_NE(message_of<c10::Error>([&] { copy({TRIDENT_PARAM_INPUT, 0}); }).find("two addresses"),
            std::string::npos);
}

}  // namespace
}  // namespace trident::test
