// The table of addresses that a walk fills and empties at every call.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "guards/pointer_map.h"

namespace trident::guards {
namespace {

const void* address(uintptr_t number) { return reinterpret_cast<const void*>(number); }

TEST(PointerMap, gives_the_position_that_an_address_was_first_met_at) {
  PointerMap map;
  EXPECT_EQ(map.find(address(16)), PointerMap::kAbsent);
  EXPECT_EQ(map.emplace(address(16), 0), std::pair(uint32_t{0}, true));
  EXPECT_EQ(map.emplace(address(32), 1), std::pair(uint32_t{1}, true));
  EXPECT_EQ(map.emplace(address(16), 2), std::pair(uint32_t{0}, false));
  EXPECT_EQ(map.find(address(32)), 1u);
  EXPECT_EQ(map.find(address(48)), PointerMap::kAbsent);
}

TEST(PointerMap, forgets_everything_when_it_is_cleared) {
  PointerMap map;
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 1; i <= 100; ++i) {
      EXPECT_TRUE(map.emplace(address(64 * i + round), i).second);
    }
    map.clear();
    for (uint32_t i = 1; i <= 100; ++i) {
      EXPECT_EQ(map.find(address(64 * i + round)), PointerMap::kAbsent);
    }
  }
}

TEST(PointerMap, agrees_with_an_ordinary_map_while_it_grows) {
  std::mt19937_64 random(1);
  PointerMap map;
  std::map<const void*, uint32_t> expected;
  for (uint32_t i = 0; i < 5000; ++i) {
    const void* key = address((random() % 3000 + 1) * 8);
    const bool added = expected.emplace(key, i).second;
    EXPECT_EQ(map.emplace(key, i), std::pair(expected[key], added));
  }
  for (const auto& [key, position] : expected) EXPECT_EQ(map.find(key), position);
}

}  // namespace
}  // namespace trident::guards
