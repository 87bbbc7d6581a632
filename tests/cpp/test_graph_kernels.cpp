// Kernels in a captured graph: their pointers are known by position, and changed where they moved.
#include <gtest/gtest.h>

#include "driver/graph_kernels.h"
#include "errors.h"
#include "fake_cuda.h"

namespace trident::test {
namespace {

using driver::GraphKernels;

class Kernels : public testing::Test {
 protected:
  Kernels() : kernels((fake.set_graph({first, second}), *(library = fake.library())), nullptr) {}
  size_t updates() const { return fake.count("graph_exec_kernel_node_set_params"); }
  const std::vector<uint64_t>& values(size_t node) const { return fake.graph()[node].values; }

  const FakeNode first{{0x100, 5, 0x200, 0, 0}};
  const FakeNode second{{0x200, 0x100, 0, 0}};
  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library;
  GraphKernels kernels;
};

TEST_F(Kernels, get_other_addresses_by_one_call_each) {
  const size_t in = kernels.find(fake.node(0), 5, 0, 0x100);
  const size_t out = kernels.find(fake.node(0), 5, 2, 0x200);
  const size_t read = kernels.find(fake.node(1), 4, 0, 0x200);
  const size_t before = updates();
  kernels.point(in, 0x180);
  kernels.point(out, 0x280);
  EXPECT_TRUE(kernels.update());
  EXPECT_EQ(updates(), before + 1);
  EXPECT_EQ(values(0), (std::vector<uint64_t>{0x180, 5, 0x280, 0, 0}));
  EXPECT_EQ(values(1), (std::vector<uint64_t>{0x200, 0x100, 0, 0}));
  kernels.point(read, 0x280);
  kernels.point(out, 0x300);
  EXPECT_TRUE(kernels.update());
  EXPECT_EQ(updates(), before + 3);
  EXPECT_EQ(values(0)[2], 0x300u);
  EXPECT_EQ(values(1)[0], 0x280u);
}

TEST_F(Kernels, whose_pointers_stay_cost_no_call_of_the_driver) {
  const size_t in = kernels.find(fake.node(0), 5, 0, 0x100);
  const size_t before = updates();
  kernels.point(in, 0x100);
  EXPECT_TRUE(kernels.update());
  EXPECT_EQ(updates(), before);
}

TEST_F(Kernels, that_the_driver_refuses_are_given_to_it_again) {
  const size_t in = kernels.find(fake.node(0), 5, 0, 0x100);
  const size_t read = kernels.find(fake.node(1), 4, 1, 0x100);
  kernels.point(in, 0x180);
  kernels.point(read, 0x180);
  fake.fail_next("graph_exec_kernel_node_set_params", 1);
  EXPECT_FALSE(kernels.update());
  EXPECT_EQ(values(0)[0], 0x100u);
  EXPECT_TRUE(kernels.update());
  EXPECT_EQ(values(0)[0], 0x180u);
  EXPECT_EQ(values(1)[1], 0x180u);
}

TEST_F(Kernels, that_hold_another_address_or_cannot_be_changed_are_an_error) {
  const auto find = [&](uintptr_t address) {
    return message_of<c10::Error>([&] { kernels.find(fake.node(0), 5, 2, address); });
  };
  EXPECT_NE(find(0x100).find("parameter 2"), std::string::npos);
  fake.fail_next("graph_exec_kernel_node_set_params", 1);
  EXPECT_NE(find(0x200).find("cannot change"), std::string::npos);
}

TEST_F(Kernels, are_found_by_where_a_capture_has_come_to) {
  fake.capture_up_to({1});
  EXPECT_EQ(library->last_captured(nullptr), fake.node(1));
  fake.capture_up_to({0, 1});
  const auto last = [&] { library->last_captured(nullptr); };
  EXPECT_NE(message_of<c10::Error>(last).find("one node"), std::string::npos);
}

}  // namespace
}  // namespace trident::test
