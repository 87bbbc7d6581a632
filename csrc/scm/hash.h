// The key: a hash of the facts that a mask fixes. It only selects candidates; equality decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trident::scm {

// Folds one word into a running hash. Multiplication by an odd constant and a fold of the high half
// spread every input bit over the result, which is enough for a table that verifies exactly.
inline uint64_t mix(uint64_t seed, uint64_t word) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(seed ^ word) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (seed << 1);
}

using HashFunction = uint64_t (*)(std::span<const uint64_t> words);

inline uint64_t hash_words(std::span<const uint64_t> words) {
  uint64_t hash = 0x2545f4914f6cdd1dull ^ words.size();
  for (const uint64_t word : words) hash = mix(hash, word);
  return hash;
}

}  // namespace trident::scm
