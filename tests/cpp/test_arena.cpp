// Arenas: growth, generations, leases.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "host/arena.h"

namespace trident::test {
namespace {

using host::Arena;
using host::ArenaLease;
using host::ArenaPool;

const c10::Device kCpu(c10::DeviceType::CPU);
const c10::Stream kStream(c10::Stream::DEFAULT, kCpu);
const c10::Stream kOtherStream(c10::Stream::UNSAFE, kCpu, 7);

// Counts the bytes that are allocated through it, and can run out.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > limit) throw std::bad_alloc();
    live += bytes;
    peak = std::max(peak, live);
    auto* block = new Block{this, std::vector<char>(bytes)};
    return {block->memory.data(), block, &free, kCpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

  size_t live = 0;
  size_t peak = 0;
  size_t limit = 1 << 20;

 private:
  struct Block {
    CountingAllocator* owner;
    std::vector<char> memory;
  };
  static void free(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->live -= block->memory.size();
    delete block;
  }
};

TEST(Arena, grows_without_holding_the_old_buffer) {
  CountingAllocator allocator;
  Arena arena(kCpu, &allocator);
  EXPECT_EQ(arena.bytes(), 0u);
  arena.reserve(1000);
  const uint64_t first = arena.generation();
  arena.reserve(500);
  EXPECT_EQ(arena.generation(), first);
  EXPECT_EQ(arena.bytes(), 1000u);
  arena.reserve(4000);
  EXPECT_NE(arena.generation(), first);
  EXPECT_EQ(allocator.live, 4000u);
  EXPECT_EQ(allocator.peak, 4000u);
  EXPECT_NE(arena.storage().data(), nullptr);
}

TEST(Arena, is_usable_after_memory_ran_out) {
  CountingAllocator allocator;
  Arena arena(kCpu, &allocator);
  arena.reserve(100);
  allocator.limit = 50;
  EXPECT_THROW(arena.reserve(200), std::bad_alloc);
  EXPECT_EQ(arena.bytes(), 0u);
  EXPECT_EQ(allocator.live, 0u);
  allocator.limit = 300;
  arena.reserve(200);
  EXPECT_EQ(arena.bytes(), 200u);
}

TEST(ArenaPool, one_call_after_the_other_uses_one_arena_per_stream) {
  ArenaPool pool;
  CountingAllocator allocator;
  const uint64_t first = pool.lease(kStream, &allocator)->id();
  const uint64_t other = pool.lease(kOtherStream, &allocator)->id();
  EXPECT_EQ(pool.lease(kStream, &allocator)->id(), first);
  EXPECT_EQ(pool.lease(kOtherStream, &allocator)->id(), other);
  EXPECT_NE(first, other);
}

TEST(ArenaPool, overlapping_calls_on_one_stream_get_arenas_of_their_own) {
  ArenaPool pool;
  CountingAllocator allocator;
  const ArenaLease outer = pool.lease(kStream, &allocator);
  const ArenaLease inner = pool.lease(kStream, &allocator);
  EXPECT_NE(outer->id(), inner->id());
}

TEST(ArenaPool, private_arenas_end_with_their_lease) {
  ArenaPool pool;
  CountingAllocator allocator;
  {
    const ArenaLease arena = ArenaPool::lease_private(kStream, &allocator);
    arena->reserve(128);
    EXPECT_EQ(allocator.live, 128u);
  }
  EXPECT_EQ(allocator.live, 0u);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST(ArenaPool, clear_frees_idle_arenas_even_where_tensors_still_refer_to_them) {
  ArenaPool pool;
  CountingAllocator allocator;
  std::unique_ptr<c10::Storage> held;
  {
    const ArenaLease arena = pool.lease(kStream, &allocator);
    arena->reserve(128);
    held = std::make_unique<c10::Storage>(arena->storage());
  }
  EXPECT_EQ(pool.idle_bytes(), 128u);
  pool.clear();
  EXPECT_EQ(pool.idle_bytes(), 0u);
  EXPECT_EQ(allocator.live, 0u);
  EXPECT_EQ(held->nbytes(), 0u);
}

TEST(ArenaPool, threads_never_share_a_leased_arena) {
  ArenaPool pool;
  std::mutex mutex;
  std::set<uint64_t> leased;
  std::atomic<int> clashes{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const ArenaLease arena = pool.lease(kStream, c10::GetCPUAllocator());
        {
          const std::lock_guard lock(mutex);
          if (!leased.insert(arena->id()).second) ++clashes;
        }
        const std::lock_guard lock(mutex);
        leased.erase(arena->id());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
}

}  // namespace
}  // namespace trident::test
