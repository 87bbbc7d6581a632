// The guard table: from the facts of a call to the specialization that serves it.
//
// Facts are a sequence of 64-bit words. A mask says which words a group of specializations leaves
// symbolic; the others are fixed. A lookup costs one hash and one probe per mask, whatever the
// number of specializations, and every candidate is compared word by word before it is used.
//
// The table is not synchronized: callers hold the interpreter lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "scm/hash.h"

namespace trident::scm {

using Words = std::span<const uint64_t>;

// What the table keeps per specialization. The runtime derives from it.
class Entry : public std::enable_shared_from_this<Entry> {
 public:
  virtual ~Entry() = default;
  // Decides what hashed facts cannot: relations between symbolic words, and recorded state.
  virtual bool accepts(Words words) { return true; }
  // Whether the entry may go as soon as another one serves its calls, too.
  virtual bool replaceable() const { return false; }
  // Whether it is a program, rather than the memory that there is none. Neither evicts the other.
  virtual bool compiled() const { return true; }

  uint64_t hits = 0;

 private:
  friend class GuardTable;
  uint64_t last_use_ = 0;
};

// Positions of symbolic words, ascending, among `size` words. Empty: every word is fixed.
struct Mask {
  size_t size = 0;
  std::vector<uint32_t> symbolic;

  bool operator==(const Mask&) const = default;
};

class GuardTable {
 public:
  explicit GuardTable(size_t capacity, HashFunction hash = hash_words);

  // The entry whose fixed words equal these and that accepts them, or nullptr. Of several the one
  // that leaves the fewest words open: what is known of a call is what makes it fast.
  Entry* find(Words words);

  // Publishes an entry for these facts. Replaceable entries that leave no other words open are
  // dropped where it serves the facts that they were published for.
  // Where the table has as many of its kind, compiled or not, as its capacity, the one of them that
  // was used longest ago is removed first and returned, so that the caller can report it.
  std::shared_ptr<Entry> insert(Words words, const Mask& mask, std::shared_ptr<Entry> entry);

  void clear();
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  size_t num_masks() const;
  std::vector<std::shared_ptr<Entry>> entries() const;

 private:
  struct Slot {
    std::vector<uint64_t> fixed;
    std::vector<uint64_t> words;  // it was published for; empty where they are the fixed ones
    std::shared_ptr<Entry> entry;
  };
  struct Group {
    Mask mask;
    std::unordered_map<uint64_t, std::vector<Slot>> slots;
  };

  Words fixed_words(const Mask& mask, Words words);
  void drop_replaceable(std::vector<Group>& groups, const Mask& mask, Words fixed, Entry& entry);
  size_t count(bool compiled) const;
  std::shared_ptr<Entry> evict_oldest(bool compiled);

  size_t capacity_;
  HashFunction hash_;
  size_t size_ = 0;
  uint64_t clock_ = 0;
  // By number of words; those with the fewest symbolic words first.
  std::unordered_map<size_t, std::vector<Group>> groups_;
  std::vector<uint64_t> scratch_;
};

}  // namespace trident::scm
