// Kernels in a captured graph: their pointers are known by position, and changed where they moved.
#include <gtest/gtest.h>

#include "driver/graph_kernels.h"
#include "errors.h"
#include "fake_cuda.h"

namespace trident::test {
namespace {

using driver::GraphKernels;
using Values = std::vector<uint64_t>;

class Kernels : public testing::Test {
 protected:
  Kernels() { start({first, second}); }
  void start(std::vector<FakeNode> nodes) {
    kernels.reset();
    fake.set_graph(std::move(nodes));
    library = fake.library();
    kernels = std::make_unique<GraphKernels>(*library, nullptr);
    in = kernels->find(fake.node(0), 5, 0, 0x100);
    out = kernels->find(fake.node(0), 5, 2, 0x200);
    read = kernels->find(fake.node(1), 4, 0, 0x200);
    kernels->instantiate();
  }
  void stay(size_t replays) {
    for (size_t i = 0; i < replays; ++i) EXPECT_TRUE(kernels->update());
  }
  bool move(size_t pointer, uintptr_t address) {
    kernels->point(pointer, address);
    return kernels->update();
  }
  size_t updates() const { return fake.count("graph_exec_kernel_node_set_params"); }
  size_t instantiated() const { return fake.count("graph_instantiate"); }
  const Values& values(size_t node) const { return fake.values(kernels->exec())[node]; }

  const FakeNode first{{0x100, 5, 0x200, 0, 0}};
  const FakeNode second{{0x200, 0x100, 0, 0}};
  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library;
  std::unique_ptr<GraphKernels> kernels;
  size_t in, out, read;
};

TEST_F(Kernels, get_other_addresses_by_one_call_each) {
  kernels->point(in, 0x180);
  kernels->point(out, 0x280);
  EXPECT_TRUE(kernels->update());
  EXPECT_EQ(updates(), 1u);
  EXPECT_EQ(values(0), (Values{0x180, 5, 0x280, 0, 0}));
  EXPECT_EQ(values(1), (Values{0x200, 0x100, 0, 0}));
  kernels->point(read, 0x280);
  kernels->point(out, 0x300);
  EXPECT_TRUE(kernels->update());
  EXPECT_EQ(updates(), 3u);
  EXPECT_EQ(values(0)[2], 0x300u);
  EXPECT_EQ(values(1)[0], 0x280u);
}

TEST_F(Kernels, whose_pointers_stay_cost_no_call_of_the_driver) {
  const size_t before = fake.calls().size();
  EXPECT_TRUE(move(in, 0x100));
  stay(1000);
  EXPECT_EQ(fake.calls().size(), before);
}

TEST_F(Kernels, that_the_driver_refuses_are_given_to_it_again) {
  kernels->point(in, 0x180);
  kernels->point(read, 0x180);
  fake.fail_next("graph_exec_kernel_node_set_params", 1);
  EXPECT_FALSE(kernels->update());
  EXPECT_EQ(values(0)[0], 0x100u);
  EXPECT_TRUE(kernels->update());
  EXPECT_EQ(values(0)[0], 0x180u);
  EXPECT_EQ(values(1)[0], 0x180u);
}

TEST_F(Kernels, that_hold_another_address_or_cannot_be_changed_are_an_error) {
  const auto find = [&](uintptr_t address) {
    return message_of<c10::Error>([&] { kernels->find(fake.node(0), 5, 2, address); });
  };
  EXPECT_NE(find(0x100).find("parameter 2"), std::string::npos);
  fake.fail_next("graph_kernel_node_set_params", 1);
  EXPECT_NE(find(0x200).find("cannot change"), std::string::npos);
}

TEST_F(Kernels, whose_addresses_stay_become_part_of_the_graph) {
  EXPECT_TRUE(move(in, 0x180));
  EXPECT_TRUE(move(read, 0x280));
  stay(1000);
  EXPECT_EQ(instantiated(), 2u);
  EXPECT_EQ(fake.num_execs(), 1u);  // the one before is given back
  EXPECT_EQ(values(0), (Values{0x180, 5, 0x200, 0, 0}));
  EXPECT_EQ(values(1), (Values{0x280, 0x100, 0, 0}));
  EXPECT_EQ(fake.capture_mode(), 0);  // as it was
  EXPECT_TRUE(move(out, 0x300));
  EXPECT_EQ(values(0), (Values{0x180, 5, 0x300, 0, 0}));
}

TEST_F(Kernels, that_move_again_have_to_stay_longer) {
  EXPECT_TRUE(move(in, 0x180));
  stay(16);
  EXPECT_EQ(instantiated(), 2u);
  EXPECT_TRUE(move(in, 0x100));
  stay(16);
  EXPECT_EQ(instantiated(), 2u);
  stay(16);
  EXPECT_EQ(instantiated(), 3u);
}

TEST_F(Kernels, that_move_now_and_then_are_told_to_the_driver_alone) {
  for (size_t round = 0; round < 50; ++round) {
    EXPECT_TRUE(move(in, 0x180 + 0x100 * round));
    stay(10);
  }
  EXPECT_EQ(instantiated(), 1u);
}

TEST_F(Kernels, of_large_graphs_are_instantiated_once) {
  std::vector<FakeNode> nodes(70, FakeNode{{1}});
  nodes[0] = first;
  nodes[1] = second;
  start(nodes);
  const size_t before = instantiated();
  EXPECT_TRUE(move(in, 0x180));
  stay(1000);
  EXPECT_EQ(instantiated(), before);
}

TEST_F(Kernels, serve_as_they_are_where_the_graph_cannot_be_instantiated_anew) {
  for (const char* entry :
       {"graph_instantiate", "graph_kernel_node_set_params", "graph_kernel_node_get_params"}) {
    start({first, second});
    EXPECT_TRUE(move(in, 0x180));
    fake.fail_next(entry, 1);
    stay(1000);
    EXPECT_EQ(values(0)[0], 0x180u) << entry;
    EXPECT_TRUE(move(out, 0x300));
    EXPECT_EQ(values(0), (Values{0x180, 5, 0x300, 0, 0})) << entry;
    stay(1000);
    EXPECT_EQ(values(0), (Values{0x180, 5, 0x300, 0, 0})) << entry;
  }
}

TEST_F(Kernels, of_a_graph_that_cannot_be_instantiated_are_an_error) {
  fake.fail_next("graph_instantiate", 1);
  EXPECT_NE(
      message_of<std::runtime_error>([&] { kernels->instantiate(); }).find("cuGraphInstantiate"),
      std::string::npos);
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
