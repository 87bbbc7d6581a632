// Arenas and the pool that lends them.
#include "host/arena.h"

#include <algorithm>
#include <atomic>
#include <iterator>

namespace trident::host {
namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> number{1};
  return number.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Arena::Arena(c10::Device device, c10::Allocator* allocator)
    : allocator_(allocator),
      storage_(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), allocator,
               /*resizable=*/false),
      id_(next_number()),
      generation_(next_number()) {}

void Arena::reserve(uint64_t bytes) {
  if (bytes <= this->bytes()) [[likely]]
    return;
  // The old buffer goes first, so that the two never count together. Work that still uses it is
  // ahead of anything the allocator gives it to, in the order of the stream.
  clear();
  replace(allocator_->allocate(bytes), bytes);
}

void Arena::clear() {
  if (bytes() != 0) replace(c10::DataPtr(nullptr, storage_.device()), 0);
}

void Arena::replace(c10::DataPtr memory, uint64_t bytes) {
  generation_ = next_number();
  storage_.set_nbytes(bytes);
  storage_.set_data_ptr_noswap(std::move(memory));
}

ArenaLease::~ArenaLease() {
  if (pool_ != nullptr && arena_ != nullptr) pool_->give_back(*home_, std::move(arena_));
}

ArenaPool& ArenaPool::instance() {
  // Left to the operating system: PyTorch's allocators may be gone at static destruction.
  static ArenaPool* const pool = new ArenaPool();
  return *pool;
}

IdleArenas& ArenaPool::of(c10::Stream stream) {
  const auto found = std::find_if(idle_.begin(), idle_.end(),
                                  [&](const auto& idle) { return idle->stream == stream; });
  if (found == idle_.begin() && found != idle_.end()) [[likely]]
    return **found;
  if (found == idle_.end()) {
    idle_.insert(idle_.begin(), std::make_unique<IdleArenas>(IdleArenas{stream, {}}));
  } else {
    std::rotate(idle_.begin(), found, found + 1);
  }
  return *idle_.front();
}

ArenaLease ArenaPool::lease(c10::Stream stream, c10::Allocator* allocator) {
  IdleArenas* home;
  {
    const std::lock_guard lock(mutex_);
    home = &of(stream);
    if (!home->arenas.empty()) [[likely]] {
      std::unique_ptr<Arena> arena = std::move(home->arenas.back());
      home->arenas.pop_back();
      return ArenaLease(this, home, std::move(arena));
    }
  }
  return ArenaLease(this, home, std::make_unique<Arena>(stream.device(), allocator));
}

ArenaLease ArenaPool::lease_private(c10::Stream stream, c10::Allocator* allocator) {
  return ArenaLease(nullptr, nullptr, std::make_unique<Arena>(stream.device(), allocator));
}

void ArenaPool::give_back(IdleArenas& home, std::unique_ptr<Arena> arena) {
  const std::lock_guard lock(mutex_);
  home.arenas.push_back(std::move(arena));
}

void ArenaPool::clear() {
  // Taken out of the pool first: freeing memory may call back into Python, which must not happen
  // under the lock.
  std::vector<std::unique_ptr<Arena>> idle;
  {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<IdleArenas>& each : idle_) {
      std::move(each->arenas.begin(), each->arenas.end(), std::back_inserter(idle));
      each->arenas.clear();
    }
  }
  // Frames still refer to these storages; empty, they hold no memory.
  for (const std::unique_ptr<Arena>& arena : idle) arena->clear();
}

uint64_t ArenaPool::idle_bytes() {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const std::unique_ptr<IdleArenas>& each : idle_) {
    for (const std::unique_ptr<Arena>& arena : each->arenas) bytes += arena->bytes();
  }
  return bytes;
}

}  // namespace trident::host
