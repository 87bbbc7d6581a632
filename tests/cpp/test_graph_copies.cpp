// Copies in a captured graph: found by their ends, and moved only where an end is another.
#include <gtest/gtest.h>

#include "driver/graph_copies.h"
#include "errors.h"
#include "fake_cuda.h"

namespace trident::test {
namespace {

using driver::GraphCopies;

FakeNode copy_node(uintptr_t from, uintptr_t to, size_t bytes, size_t height = 1) {
  FakeNode node{driver::cuda::kGraphNodeMemcpy};
  node.params.source.device = from;
  node.params.target.device = to;
  node.params.width_bytes = bytes;
  node.params.height = height;
  node.params.depth = 1;
  return node;
}

class Copies : public testing::Test {
 protected:
  Copies() {
    const FakeNode kernel{0};
    fake.set_graph({kernel, copy_node(0x100, 0x200, 8), copy_node(0x100, 0x300, 8),
                    copy_node(0x400, 0x500, 16), copy_node(0x600, 0x700, 8, 4)});
    library = fake.library();
  }
  size_t updates() const { return fake.count("graph_exec_memcpy_node_set_params"); }

  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library;
};

TEST_F(Copies, are_found_by_both_ends_and_their_size) {
  GraphCopies copies(*library, nullptr, nullptr);
  const size_t first = copies.find(0x100, 0x300, 8);
  EXPECT_TRUE(copies.move_source(first, 0x180));
  EXPECT_EQ(fake.graph()[1].params.source.device, 0x100u);
  EXPECT_EQ(fake.graph()[2].params.source.device, 0x180u);
  EXPECT_EQ(fake.graph()[2].params.target.device, 0x300u);
  const size_t second = copies.find(0x400, 0x500, 16);
  EXPECT_TRUE(copies.move_target(second, 0x580));
  EXPECT_EQ(fake.graph()[3].params.source.device, 0x400u);
  EXPECT_EQ(fake.graph()[3].params.target.device, 0x580u);
}

TEST_F(Copies, whose_ends_stay_cost_no_call_of_the_driver) {
  GraphCopies copies(*library, nullptr, nullptr);
  const size_t copy = copies.find(0x400, 0x500, 16);
  const size_t before = updates();
  EXPECT_TRUE(copies.move_source(copy, 0x400));
  EXPECT_TRUE(copies.move_target(copy, 0x500));
  EXPECT_EQ(updates(), before);
  EXPECT_TRUE(copies.move_source(copy, 0x480));
  EXPECT_TRUE(copies.move_source(copy, 0x480));
  EXPECT_EQ(updates(), before + 1);
}

TEST_F(Copies, that_are_absent_or_cannot_be_moved_are_an_error) {
  GraphCopies copies(*library, nullptr, nullptr);
  const auto find = [&](uintptr_t from, uintptr_t to, size_t bytes) {
    return message_of<c10::Error>([&] { copies.find(from, to, bytes); });
  };
  EXPECT_NE(find(0x100, 0x200, 16).find("a copy of 16 bytes is not"), std::string::npos);
  EXPECT_NE(find(0x600, 0x700, 8).find("a copy of 8 bytes is not"), std::string::npos);
  fake.fail_next("graph_exec_memcpy_node_set_params", 1);
  EXPECT_NE(find(0x100, 0x200, 8).find("cannot move"), std::string::npos);
}

TEST_F(Copies, between_the_same_places_are_not_told_apart_but_refused) {
  fake.set_graph({copy_node(0x100, 0x200, 8), copy_node(0x100, 0x200, 8)});
  GraphCopies copies(*library, nullptr, nullptr);
  const std::string message = message_of<c10::Error>([&] { copies.find(0x100, 0x200, 8); });
  EXPECT_NE(message.find("two copies of 8 bytes"), std::string::npos);
}

TEST_F(Copies, stay_as_they_were_where_the_driver_refuses) {
  GraphCopies copies(*library, nullptr, nullptr);
  const size_t copy = copies.find(0x100, 0x200, 8);
  fake.fail_next("graph_exec_memcpy_node_set_params", 1);
  EXPECT_FALSE(copies.move_source(copy, 0x180));
  EXPECT_EQ(fake.graph()[1].params.source.device, 0x100u);
  EXPECT_TRUE(copies.move_source(copy, 0x180));
  EXPECT_EQ(fake.graph()[1].params.source.device, 0x180u);
}

TEST_F(Copies, whose_source_begins_inside_of_a_row_are_moved_as_a_whole) {
  FakeNode node = copy_node(0x100, 0x200, 8);
  node.params.source.x_bytes = 0x20;
  fake.set_graph({node});
  GraphCopies copies(*library, nullptr, nullptr);
  const size_t copy = copies.find(0x120, 0x200, 8);
  EXPECT_TRUE(copies.move_source(copy, 0x900));
  EXPECT_EQ(fake.graph()[0].params.source.device, 0x900u);
  EXPECT_EQ(fake.graph()[0].params.source.x_bytes, 0u);
}

}  // namespace
}  // namespace trident::test
