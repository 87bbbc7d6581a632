// Hash, masks and the guard table: look-up, exact verification, residual guards, eviction.
#include "scm/guard_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace trident::scm {
namespace {

struct Named : Entry {
  explicit Named(int name) : name(name) {}
  int name;
};

// Accepts only words whose word at `position` is at most `limit`.
struct Limited : Named {
  Limited(int name, size_t position, uint64_t limit)
      : Named(name), position(position), limit(limit) {}
  bool accepts(Words words) override {
    ++asked;
    return words[position] <= limit;
  }
  size_t position;
  uint64_t limit;
  int asked = 0;
};

using Facts = std::vector<uint64_t>;

int found(GuardTable& table, const Facts& facts) {
  Entry* entry = table.find(facts);
  return entry ? static_cast<Named*>(entry)->name : -1;
}

void put(GuardTable& table, const Facts& facts, int name, std::vector<uint32_t> symbolic = {}) {
  const Mask mask{facts.size(), std::move(symbolic)};
  table.insert(facts, mask, std::make_shared<Named>(name));
}

uint64_t constant_hash(std::span<const uint64_t>) { return 7; }

int hash_calls = 0;
uint64_t counting_hash(std::span<const uint64_t> words) {
  ++hash_calls;
  return hash_words(words);
}

TEST(Hash, DependsOnEveryWordItsPlaceAndTheirNumber) {
  std::set<uint64_t> seen;
  std::vector<Facts> distinct = {{}, {0}, {0, 0}, {0, 0, 0}, {1}, {1, 2}, {2, 1}, {1, 2, 3}};
  for (int bit = 0; bit < 64; ++bit) {
    distinct.push_back({uint64_t{1} << bit, 5});
    distinct.push_back({5, uint64_t{1} << bit});
  }
  for (const Facts& facts : distinct) seen.insert(hash_words(facts));
  EXPECT_EQ(seen.size(), distinct.size());
}

TEST(Hash, SpreadsOneChangedBitOverTheResult) {
  const uint64_t base = hash_words(Facts{3, 4, 5});
  int flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    flipped += std::popcount(base ^ hash_words(Facts{3, 4 ^ (uint64_t{1} << bit), 5}));
  }
  EXPECT_GT(flipped / 64, 20);
}

TEST(GuardTable, FindsOnlyEqualFacts) {
  GuardTable table(8);
  put(table, {1, 2, 3}, 1);
  EXPECT_EQ(found(table, {1, 2, 3}), 1);
  EXPECT_EQ(found(table, {1, 2, 4}), -1);
  EXPECT_EQ(found(table, {1, 2}), -1);
  EXPECT_EQ(found(table, {1, 2, 3, 0}), -1);
  EXPECT_EQ(found(table, {}), -1);
}

TEST(GuardTable, TheEntryWithTheFewestSymbolicWordsGoesFirst) {
  GuardTable table(8);
  put(table, {1, 2, 3}, 1, {1, 2});
  put(table, {1, 2, 3}, 2, {1});
  put(table, {1, 2, 3}, 3);
  EXPECT_EQ(found(table, {1, 2, 3}), 3);
  EXPECT_EQ(found(table, {1, 5, 3}), 2);
  EXPECT_EQ(found(table, {1, 5, 4}), 1);
}

struct Replaceable : Named {
  using Named::Named;
  bool accepts(Words) override { return accepting; }
  bool replaceable() const override { return hits == 0; }
  bool accepting = true;
};

TEST(GuardTable, DropsWhatANewEntryServesAsWell) {
  GuardTable table(16);
  // Serves a part of what the new entry does, and another part.
  table.insert(Facts{1, 7, 3}, Mask{3, {1}}, std::make_shared<Replaceable>(8));
  table.insert(Facts{1, 7, 3}, Mask{3, {2}}, std::make_shared<Replaceable>(9));
  const auto add = [&](const Facts& facts, int name) {
    auto entry = std::make_shared<Replaceable>(name);
    table.insert(facts, Mask{facts.size(), {}}, entry);
    return entry;
  };
  add({1, 2, 3}, 1);
  add({1, 3, 3}, 2)->hits = 1;           // has proved useful
  add({7, 2, 3}, 3);                     // differs in a fixed word
  add({1, 60, 3}, 4);                    // is beyond the new entry's limit
  add({1, 4, 3}, 5)->accepting = false;  // the state it was made for is gone for now
  put(table, {1, 5, 3}, 6);              // is not replaceable
  EXPECT_EQ(table.insert(Facts{1, 9, 3}, Mask{3, {1}}, std::make_shared<Limited>(7, 1, 50)),
            nullptr);
  EXPECT_EQ(table.size(), 7u);
  EXPECT_EQ(found(table, {1, 2, 3}), 7);
  EXPECT_EQ(found(table, {1, 3, 3}), 2);
  EXPECT_EQ(found(table, {7, 2, 3}), 3);
  EXPECT_EQ(found(table, {1, 60, 3}), 4);
  EXPECT_EQ(found(table, {1, 5, 3}), 6);
}

TEST(GuardTable, EmptyFactsAreFactsToo) {
  GuardTable table(8);
  EXPECT_EQ(found(table, {}), -1);
  put(table, {}, 4);
  EXPECT_EQ(found(table, {}), 4);
}

TEST(GuardTable, NeverTrustsAHash) {
  GuardTable table(64, &constant_hash);
  for (uint64_t i = 0; i < 32; ++i) put(table, {i, i * i}, static_cast<int>(i));
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(found(table, {i, i * i}), static_cast<int>(i));
  EXPECT_EQ(found(table, {3, 10}), -1);
  EXPECT_EQ(found(table, {99, 99 * 99}), -1);
}

TEST(GuardTable, VerifiesFixedWordsOfAMaskBehindACollision) {
  GuardTable table(8, &constant_hash);
  put(table, {1, 10, 3}, 1, {1});
  put(table, {2, 10, 3}, 2, {1});
  EXPECT_EQ(found(table, {1, 77, 3}), 1);
  EXPECT_EQ(found(table, {2, 78, 3}), 2);
  EXPECT_EQ(found(table, {3, 10, 3}), -1);
}

TEST(GuardTable, TellsMasksAndResidualGuardsApartBehindACollision) {
  GuardTable table(8, &constant_hash);
  put(table, {1, 10, 3}, 1);
  put(table, {1, 11, 3}, 2, {2});
  auto limited = std::make_shared<Limited>(3, 1, 16);
  table.insert(Facts{1, 12, 3}, Mask{3, {1}}, limited);
  EXPECT_EQ(found(table, {1, 10, 3}), 1);
  EXPECT_EQ(found(table, {1, 11, 9}), 2);
  EXPECT_EQ(found(table, {1, 16, 3}), 3);
  EXPECT_EQ(found(table, {1, 17, 3}), -1);
  EXPECT_EQ(found(table, {2, 16, 3}), -1);
}

TEST(GuardTable, EvictsTheOldestOfAnOverfullBucketAlone) {
  GuardTable table(3, &constant_hash);
  put(table, {1, 5}, 1);
  put(table, {2, 5}, 2, {1});
  put(table, {3, 5}, 3);
  EXPECT_EQ(found(table, {1, 5}), 1);
  put(table, {4, 5}, 4);  // 2 was used longest ago
  EXPECT_EQ(found(table, {2, 5}), -1);
  for (const int name : {1, 3, 4}) {
    EXPECT_EQ(found(table, {static_cast<uint64_t>(name), 5}), name);
  }
}

TEST(GuardTable, AMaskWithoutEntriesCostsNoProbe) {
  GuardTable table(1, &counting_hash);
  put(table, {1, 2, 3}, 1, {0});
  put(table, {1, 2, 3}, 2, {1});
  EXPECT_EQ(table.num_masks(), 1u);
  hash_calls = 0;
  EXPECT_EQ(found(table, {1, 9, 3}), 2);
  EXPECT_EQ(hash_calls, 1);
}

TEST(GuardTable, SymbolicWordsAreLeftOutOfTheKey) {
  GuardTable table(8);
  put(table, {1, 10, 3, 20}, 1, {1, 3});
  EXPECT_EQ(found(table, {1, 11, 3, 21}), 1);
  EXPECT_EQ(found(table, {2, 10, 3, 20}), -1);
  EXPECT_EQ(found(table, {1, 10, 4, 20}), -1);
}

TEST(GuardTable, SymbolicWordsAtBothEndsAndNothingElse) {
  GuardTable table(8);
  put(table, {1, 2}, 1, {0, 1});
  EXPECT_EQ(found(table, {5, 6}), 1);
  EXPECT_EQ(found(table, {5, 6, 7}), -1);
}

TEST(GuardTable, WordsThatMoveAcrossASymbolicPositionDiffer) {
  // Both leave the fixed words 1, 2; only the mask tells them apart.
  GuardTable table(8);
  put(table, {1, 9, 2}, 1, {1});
  put(table, {9, 1, 2}, 2, {0});
  EXPECT_EQ(table.num_masks(), 2u);
  EXPECT_EQ(found(table, {1, 50, 2}), 1);
  EXPECT_EQ(found(table, {50, 1, 2}), 2);
  EXPECT_EQ(found(table, {1, 2, 50}), -1);
}

TEST(GuardTable, CostsOneProbePerMaskWhateverTheNumberOfEntries) {
  GuardTable table(1000, &counting_hash);
  for (uint64_t i = 0; i < 500; ++i) put(table, {i, 1, 2}, static_cast<int>(i));
  put(table, {7, 1, 3}, 1000, {0});
  EXPECT_EQ(table.num_masks(), 2u);
  hash_calls = 0;
  EXPECT_EQ(found(table, {499, 1, 2}), 499);
  EXPECT_LE(hash_calls, 2);
  hash_calls = 0;
  EXPECT_EQ(found(table, {1, 2, 3}), -1);
  EXPECT_EQ(hash_calls, 2);
  hash_calls = 0;
  EXPECT_EQ(found(table, {1, 2}), -1);  // no entry has two words
  EXPECT_EQ(hash_calls, 0);
}

TEST(GuardTable, ResidualGuardDecidesOverSymbolicWords) {
  GuardTable table(8);
  const Mask mask{2, {1}};
  auto small = std::make_shared<Limited>(1, 1, 16);
  auto large = std::make_shared<Limited>(2, 1, 4096);
  table.insert(Facts{5, 10}, mask, large);
  table.insert(Facts{5, 10}, mask, small);
  EXPECT_EQ(found(table, {5, 12}), 1);
  EXPECT_EQ(found(table, {5, 100}), 2);
  EXPECT_EQ(found(table, {5, 5000}), -1);
  EXPECT_EQ(small->asked, 3);
}

TEST(GuardTable, AsksTheResidualGuardOnlyWhereFixedWordsAgree) {
  GuardTable table(8, &constant_hash);
  auto entry = std::make_shared<Limited>(1, 1, 16);
  table.insert(Facts{5, 10}, Mask{2, {1}}, entry);
  EXPECT_EQ(found(table, {6, 10}), -1);
  EXPECT_EQ(entry->asked, 0);
}

TEST(GuardTable, NewerEntryOfEqualFactsIsMetFirst) {
  GuardTable table(8);
  put(table, {1}, 1);
  put(table, {1}, 2);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(found(table, {1}), 2);
}

TEST(GuardTable, EvictsWhatWasUsedLongestAgo) {
  GuardTable table(3);
  put(table, {1}, 1);
  put(table, {2}, 2);
  put(table, {3}, 3);
  EXPECT_EQ(found(table, {1}), 1);  // now 2 is the oldest
  auto evicted = table.insert(Facts{4}, Mask{1, {}}, std::make_shared<Named>(4));
  ASSERT_NE(evicted, nullptr);
  EXPECT_EQ(static_cast<Named&>(*evicted).name, 2);
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(found(table, {2}), -1);
  EXPECT_EQ(found(table, {1}), 1);
  EXPECT_EQ(found(table, {3}), 3);
  EXPECT_EQ(found(table, {4}), 4);
}

TEST(GuardTable, EvictionReachesEveryMaskAndNumberOfWords) {
  GuardTable table(2);
  put(table, {1, 2}, 1, {1});
  put(table, {1, 2, 3}, 2);
  put(table, {9}, 3);
  EXPECT_EQ(found(table, {1, 5}), -1);
  EXPECT_EQ(found(table, {1, 2, 3}), 2);
  put(table, {8}, 4);
  EXPECT_EQ(found(table, {9}), -1);
  EXPECT_EQ(table.size(), 2u);
}

// The memory that calls with certain facts run eagerly.
struct Eager : Named {
  using Named::Named;
  bool compiled() const override { return false; }
};

TEST(GuardTable, ProgramsAndTheMemoryOfNoneDoNotEvictEachOther) {
  GuardTable table(2);
  put(table, {1}, 1);
  put(table, {2}, 2);
  for (uint64_t fact = 10; fact < 15; ++fact) {
    const auto evicted = table.insert(Facts{fact}, Mask{1, {}}, std::make_shared<Eager>(fact));
    if (evicted) EXPECT_FALSE(evicted->compiled());
  }
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(found(table, {12}), -1);
  EXPECT_EQ(found(table, {13}), 13);
  put(table, {3}, 3);
  EXPECT_EQ(found(table, {1}), -1);
  EXPECT_EQ(found(table, {2}), 2);
  EXPECT_EQ(found(table, {13}), 13);
  EXPECT_EQ(found(table, {14}), 14);
}

TEST(GuardTable, AFailedLookupIsNotAUse) {
  GuardTable table(2);
  auto refusing = std::make_shared<Limited>(1, 0, 0);
  table.insert(Facts{5}, Mask{1, {}}, refusing);
  put(table, {6}, 2);
  EXPECT_EQ(found(table, {5}), -1);
  put(table, {7}, 3);
  EXPECT_EQ(found(table, {6}), 2);
}

TEST(GuardTable, EvictedEntryOutlivesTheTableForWhoHoldsIt) {
  auto entry = std::make_shared<Named>(1);
  std::weak_ptr<Named> watched = entry;
  std::shared_ptr<Entry> evicted;
  {
    GuardTable table(1);
    table.insert(Facts{1}, Mask{1, {}}, std::move(entry));
    evicted = table.insert(Facts{2}, Mask{1, {}}, std::make_shared<Named>(2));
  }
  EXPECT_FALSE(watched.expired());
  evicted.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(GuardTable, CapacityIsAtLeastOne) {
  GuardTable table(0);
  EXPECT_EQ(table.capacity(), 1u);
  put(table, {1}, 1);
  EXPECT_EQ(found(table, {1}), 1);
  put(table, {2}, 2);
  EXPECT_EQ(table.size(), 1u);
}

TEST(GuardTable, ListsAndClearsAllEntries) {
  GuardTable table(8);
  put(table, {1}, 1);
  put(table, {1, 2}, 2, {0});
  put(table, {3, 4}, 3);
  std::set<int> names;
  for (const auto& entry : table.entries()) names.insert(static_cast<Named&>(*entry).name);
  EXPECT_EQ(names, (std::set<int>{1, 2, 3}));
  EXPECT_EQ(table.num_masks(), 3u);
  table.clear();
  EXPECT_EQ(table.size(), 0u);
  EXPECT_TRUE(table.entries().empty());
  EXPECT_EQ(found(table, {1}), -1);
}

}  // namespace
}  // namespace trident::scm
