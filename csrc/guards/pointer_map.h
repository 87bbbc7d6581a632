// From addresses to the positions they were first met at: a table that is filled and emptied at every
// call without giving its memory back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trident::guards {

class PointerMap {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  // The position of `key`, after adding it with `position` where it was absent; and whether it was.
  std::pair<uint32_t, bool> emplace(const void* key, uint32_t position) {
    if (2 * (size_ + 1) > slots_.size()) [[unlikely]]
      grow();
    Slot& slot = slots_[index_of(key)];
    if (slot.round == round_) return {slot.position, false};
    slot = {key, position, round_};
    ++size_;
    return {position, true};
  }

  uint32_t find(const void* key) const {
    if (size_ == 0) return kAbsent;
    const Slot& slot = slots_[index_of(key)];
    return slot.round == round_ ? slot.position : kAbsent;
  }

  void clear() {
    size_ = 0;
    if (++round_ != 0) [[likely]]
      return;
    for (Slot& slot : slots_) slot.round = 0;
    round_ = 1;
  }

 private:
  // A slot of an earlier round is empty.
  struct Slot {
    const void* key = nullptr;
    uint32_t position = 0;
    uint32_t round = 0;
  };

  // Where the key is, or the empty slot that it would take. At least half of the slots are empty.
  size_t index_of(const void* key) const {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15ull;
    size_t index = static_cast<size_t>(mixed >> 32) & mask;
    while (slots_[index].round == round_ && slots_[index].key != key) index = (index + 1) & mask;
    return index;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kFirstSize : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.round == round_) slots_[index_of(slot.key)] = slot;
    }
  }

  static constexpr size_t kFirstSize = 16;  // a power of two, as all that follow

  std::vector<Slot> slots_;
  size_t size_ = 0;
  uint32_t round_ = 1;
};

}  // namespace trident::guards
