// The guard table: masks, equality behind the hash, relations between symbolic words, eviction.
#include "scm/guard_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace trident::scm {
namespace {

using Facts = std::vector<uint64_t>;

class TestEntry : public Entry {
 public:
  explicit TestEntry(std::function<bool(Words)> condition = nullptr)
      : condition_(std::move(condition)) {}
  bool accepts(Words words) override { return !condition_ || condition_(words); }

 private:
  std::function<bool(Words)> condition_;
};

uint64_t always_the_same(std::span<const uint64_t>) { return 7; }

TEST(GuardTable, fixed_words_decide) {
  GuardTable table(8);
  const Facts facts{1, 5, 9};
  const auto entry = std::make_shared<TestEntry>();
  table.insert(facts, Mask{3, {}}, entry);
  EXPECT_EQ(table.find(facts), entry.get());
  EXPECT_EQ(table.find(Facts{1, 6, 9}), nullptr);
  EXPECT_EQ(table.find(Facts{1, 5}), nullptr);
  EXPECT_EQ(table.find(Facts{1, 5, 9, 0}), nullptr);
}

TEST(GuardTable, symbolic_words_are_open_and_the_others_are_not) {
  GuardTable table(8);
  const auto entry = std::make_shared<TestEntry>();
  table.insert(Facts{1, 5, 9, 5}, Mask{4, {1, 3}}, entry);
  EXPECT_EQ(table.find(Facts{1, 70, 9, 2}), entry.get());
  EXPECT_EQ(table.find(Facts{1, 70, 8, 2}), nullptr);
  EXPECT_EQ(table.find(Facts{2, 5, 9, 5}), nullptr);
}

TEST(GuardTable, relations_between_symbolic_words_are_asked) {
  GuardTable table(8);
  const auto equal = std::make_shared<TestEntry>(
      [](Words words) { return words[0] == words[1] && words[0] >= 2; });
  table.insert(Facts{5, 5}, Mask{2, {0, 1}}, equal);
  EXPECT_EQ(table.find(Facts{8, 8}), equal.get());
  EXPECT_EQ(table.find(Facts{8, 9}), nullptr);
  EXPECT_EQ(table.find(Facts{1, 1}), nullptr);
  const auto any = std::make_shared<TestEntry>([](Words words) { return words[0] >= 2; });
  table.insert(Facts{8, 9}, Mask{2, {0, 1}}, any);
  EXPECT_EQ(table.find(Facts{8, 9}), any.get());
  EXPECT_EQ(table.num_masks(), 1u);
}

TEST(GuardTable, masks_are_probed_one_after_the_other) {
  GuardTable table(8);
  const auto fixed = std::make_shared<TestEntry>();
  const auto open = std::make_shared<TestEntry>([](Words words) { return words[1] >= 2; });
  table.insert(Facts{1, 1}, Mask{2, {}}, fixed);
  table.insert(Facts{1, 5}, Mask{2, {1}}, open);
  EXPECT_EQ(table.num_masks(), 2u);
  EXPECT_EQ(table.find(Facts{1, 1}), fixed.get());
  EXPECT_EQ(table.find(Facts{1, 6}), open.get());
  EXPECT_EQ(table.find(Facts{1, 0}), nullptr);
}

TEST(GuardTable, equal_hashes_are_compared_word_by_word) {
  GuardTable table(8, always_the_same);
  const auto first = std::make_shared<TestEntry>();
  const auto second = std::make_shared<TestEntry>();
  table.insert(Facts{1, 5, 3}, Mask{3, {1}}, first);
  table.insert(Facts{2, 5, 3}, Mask{3, {1}}, second);
  EXPECT_EQ(table.find(Facts{1, 9, 3}), first.get());
  EXPECT_EQ(table.find(Facts{2, 9, 3}), second.get());
  EXPECT_EQ(table.find(Facts{3, 9, 3}), nullptr);
}

TEST(GuardTable, the_entry_used_longest_ago_makes_room_whatever_its_mask) {
  GuardTable table(2);
  const auto open = std::make_shared<TestEntry>();
  const auto fixed = std::make_shared<TestEntry>();
  table.insert(Facts{1, 5}, Mask{2, {1}}, open);
  table.insert(Facts{2, 5}, Mask{2, {}}, fixed);
  EXPECT_EQ(table.find(Facts{1, 8}), open.get());
  EXPECT_EQ(table.insert(Facts{3, 5}, Mask{2, {}}, std::make_shared<TestEntry>()), fixed);
  EXPECT_EQ(table.find(Facts{1, 9}), open.get());
  EXPECT_EQ(table.size(), 2u);
}

}  // namespace
}  // namespace trident::scm
