// Which graphs of a specialization are kept, and when one is captured.
#include <gtest/gtest.h>

#include "host/graph_table.h"

namespace trident::test {
namespace {

using host::GraphReplay;
using host::GraphTable;

// Something to point at: the table never looks into a replay.
std::shared_ptr<GraphReplay> some_replay() {
  const auto owner = std::make_shared<char>();
  return {owner, reinterpret_cast<GraphReplay*>(owner.get())};
}

TEST(GraphTable, FindsWhatItWasAskedFor) {
  GraphTable table;
  EXPECT_EQ(table.find({7}), nullptr);
  table.of({7}).mismatches = 2;
  table.of({8});
  ASSERT_NE(table.find({7}), nullptr);
  EXPECT_EQ(table.find({7})->mismatches, 2u);
  EXPECT_EQ(table.find({7, 8}), nullptr);
  EXPECT_EQ(table.find({}), nullptr);
}

TEST(GraphTable, CapturesAfterEnoughHitsOfTheSameSizes) {
  GraphTable table;
  for (int hit = 0; hit < 3; ++hit) {
    EXPECT_FALSE(table.wants_capture(table.of({1}), 3));
    EXPECT_FALSE(table.wants_capture(table.of({2}), 3));
  }
  EXPECT_TRUE(table.wants_capture(table.of({1}), 3));
  table.of({1}).tried = true;
  EXPECT_FALSE(table.wants_capture(table.of({1}), 3));
  EXPECT_TRUE(table.wants_capture(table.of({2}), 3));
}

TEST(GraphTable, CapturesAnewWhereTheReplayDoesNotFitUntilThereAreTooMany) {
  GraphTable table;
  GraphTable::State& state = table.of({});
  for (uint32_t capture = 0; capture < GraphTable::kMaxCaptures; ++capture) {
    EXPECT_TRUE(table.wants_capture(state, 0));
    state.tried = true;
    table.count_capture();
    state.mismatches = GraphTable::kMismatchesBeforeRecapture - 1;
    EXPECT_FALSE(table.wants_capture(state, 0));
    ++state.mismatches;
  }
  EXPECT_FALSE(table.wants_capture(state, 0));
}

TEST(GraphTable, ForgetsTheOldestAndThoseWithAReplayLast) {
  GraphTable table;
  table.of({0}).replay = some_replay();
  for (int64_t value = 1; value < 100; ++value) table.of({value});
  EXPECT_NE(table.find({0}), nullptr);
  EXPECT_EQ(table.find({1}), nullptr);
  EXPECT_NE(table.find({99}), nullptr);
  for (int64_t value = 100; value < 120; ++value) table.of({value}).replay = some_replay();
  EXPECT_EQ(table.find({0}), nullptr);
  EXPECT_EQ(table.find({99}), nullptr);
  EXPECT_NE(table.find({119}), nullptr);
  EXPECT_EQ(table.find({119})->calls, 0u);
}

TEST(GraphTable, KeepsMoreOfSmallPrograms) {
  const auto kept = [](size_t kernels) {
    GraphTable table;
    table.fit(kernels);
    for (int64_t value = 0; value < 200; ++value) table.of({value, -value}).calls = value;
    int64_t count = 0;
    while (count < 200 && table.find({199 - count, count - 199})) ++count;
    EXPECT_EQ(table.find({199, -199})->calls, 199u);
    return count;
  };
  EXPECT_EQ(kept(0), 64);
  EXPECT_EQ(kept(1), 64);
  EXPECT_EQ(kept(32), 32);
  EXPECT_EQ(kept(400), 16);
}

}  // namespace
}  // namespace trident::test
