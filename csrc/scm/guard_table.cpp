#include "scm/guard_table.h"

#include <algorithm>

namespace trident::scm {

GuardTable::GuardTable(size_t capacity, HashFunction hash)
    : capacity_(capacity == 0 ? 1 : capacity), hash_(hash) {}

Words GuardTable::fixed_words(const Mask& mask, Words words) {
  if (mask.symbolic.empty()) return words;
  scratch_.clear();
  auto next = mask.symbolic.begin();
  for (size_t i = 0; i < words.size(); ++i) {
    if (next != mask.symbolic.end() && *next == i) {
      ++next;
    } else {
      scratch_.push_back(words[i]);
    }
  }
  return scratch_;
}

Entry* GuardTable::find(Words words) {
  const auto groups = groups_.find(words.size());
  if (groups == groups_.end()) return nullptr;
  for (Group& group : groups->second) {
    const Words fixed = fixed_words(group.mask, words);
    const auto bucket = group.slots.find(hash_(fixed));
    if (bucket == group.slots.end()) continue;
    for (Slot& slot : bucket->second) {
      if (std::equal(fixed.begin(), fixed.end(), slot.fixed.begin(), slot.fixed.end()) &&
          slot.entry->accepts(words)) {
        slot.entry->last_use_ = ++clock_;
        return slot.entry.get();
      }
    }
  }
  return nullptr;
}

std::shared_ptr<Entry> GuardTable::insert(Words words, const Mask& mask,
                                          std::shared_ptr<Entry> entry) {
  std::vector<Group>& groups = groups_[words.size()];
  const Words own = fixed_words(mask, words);
  const std::vector<uint64_t> fixed(own.begin(), own.end());
  if (!mask.symbolic.empty()) drop_replaceable(groups, mask, fixed, *entry);
  std::shared_ptr<Entry> evicted;
  const bool compiled = entry->compiled();
  if (count(compiled) >= capacity_) evicted = evict_oldest(compiled);
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const Group& other) { return other.mask == mask; });
  if (group == groups.end()) {
    const auto place = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return other.mask.symbolic.size() > mask.symbolic.size();
    });
    group = groups.insert(place, Group{mask, {}});
  }
  entry->last_use_ = ++clock_;
  // Newest first: where an older entry no longer accepts (its recorded state is gone), the newer
  // one is met without trying the old one.
  std::vector<Slot>& bucket = group->slots[hash_(fixed)];
  std::vector<uint64_t> published;
  if (!mask.symbolic.empty()) published.assign(words.begin(), words.end());
  bucket.insert(bucket.begin(), Slot{fixed, std::move(published), std::move(entry)});
  ++size_;
  return evicted;
}

void GuardTable::drop_replaceable(std::vector<Group>& groups, const Mask& mask, Words fixed,
                                  Entry& entry) {
  for (Group& group : groups) {
    if (!std::includes(mask.symbolic.begin(), mask.symbolic.end(), group.mask.symbolic.begin(),
                       group.mask.symbolic.end())) {
      continue;
    }
    for (auto& [key, bucket] : group.slots) {
      const auto served = [&](const Slot& slot) {
        const Words words = slot.words.empty() ? slot.fixed : slot.words;
        if (!slot.entry->replaceable() || !slot.entry->accepts(words) || !entry.accepts(words)) {
          return false;
        }
        const Words same = fixed_words(mask, words);
        return std::equal(same.begin(), same.end(), fixed.begin(), fixed.end());
      };
      size_ -= std::erase_if(bucket, served);
    }
    std::erase_if(group.slots, [](const auto& slot) { return slot.second.empty(); });
  }
  std::erase_if(groups, [](const Group& group) { return group.slots.empty(); });
}

size_t GuardTable::count(bool compiled) const {
  const std::vector<std::shared_ptr<Entry>> all = entries();
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](const auto& entry) { return entry->compiled() == compiled; }));
}

std::shared_ptr<Entry> GuardTable::evict_oldest(bool compiled) {
  struct Place {
    std::vector<Group>* groups = nullptr;
    size_t group = 0;
    uint64_t key = 0;
    size_t index = 0;
    const Entry* entry = nullptr;
  } oldest;
  for (auto& [count, groups] : groups_) {
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const auto& [key, bucket] : groups[g].slots) {
        for (size_t i = 0; i < bucket.size(); ++i) {
          const Entry* entry = bucket[i].entry.get();
          if (entry->compiled() != compiled) continue;
          if (!oldest.entry || entry->last_use_ < oldest.entry->last_use_) {
            oldest = {&groups, g, key, i, entry};
          }
        }
      }
    }
  }
  if (!oldest.entry) return nullptr;
  const auto at = [](size_t index) { return static_cast<std::ptrdiff_t>(index); };
  Group& group = (*oldest.groups)[oldest.group];
  std::vector<Slot>& bucket = group.slots[oldest.key];
  std::shared_ptr<Entry> evicted = std::move(bucket[oldest.index].entry);
  bucket.erase(bucket.begin() + at(oldest.index));
  // What is empty would cost later look-ups a probe.
  if (bucket.empty()) group.slots.erase(oldest.key);
  if (group.slots.empty()) oldest.groups->erase(oldest.groups->begin() + at(oldest.group));
  --size_;
  return evicted;
}

void GuardTable::clear() {
  groups_.clear();
  size_ = 0;
}

size_t GuardTable::num_masks() const {
  size_t count = 0;
  for (const auto& [size, groups] : groups_) count += groups.size();
  return count;
}

std::vector<std::shared_ptr<Entry>> GuardTable::entries() const {
  std::vector<std::shared_ptr<Entry>> all;
  for (const auto& [size, groups] : groups_) {
    for (const Group& group : groups) {
      for (const auto& [key, bucket] : group.slots) {
        for (const Slot& slot : bucket) all.push_back(slot.entry);
      }
    }
  }
  return all;
}

}  // namespace trident::scm
