// Memory for planned tensors: growing buffers that all programs of a stream share.
//
// An arena is leased by one running call at a time. On CUDA its reuse by the next call is ordered by
// the stream; on the CPU the lease itself is the order. Two calls that run at once on one stream,
// from two threads or nested, lease two arenas.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace trident::host {

// One storage whose memory is replaced when a program needs more. Tensors over the storage stay
// valid and follow it; addresses that were read out of it do not, which the generation tells.
class Arena {
 public:
  Arena(c10::Device device, c10::Allocator* allocator);

  // Grows to at least `bytes`, without keeping the contents. The arena's device and stream are
  // current. If memory runs out the arena is left empty and usable.
  void reserve(uint64_t bytes);
  // Gives the memory back to the allocator.
  void clear();

  const c10::Storage& storage() const { return storage_; }
  uint64_t bytes() const { return storage_.nbytes(); }
  uint64_t id() const { return id_; }  // never reused in the process
  // Unique in the process for one arena with one buffer.
  uint64_t generation() const { return generation_; }

 private:
  void replace(c10::DataPtr memory, uint64_t bytes);

  c10::Allocator* allocator_;
  c10::Storage storage_;
  uint64_t id_;
  uint64_t generation_;
};

class ArenaPool;

// The idle arenas of one stream.
struct IdleArenas {
  c10::Stream stream;
  std::vector<std::unique_ptr<Arena>> arenas;
};

// An arena for the duration of one call; goes back to its pool at the end.
class ArenaLease {
 public:
  ArenaLease(ArenaPool* pool, IdleArenas* home, std::unique_ptr<Arena> arena)
      : pool_(pool), home_(home), arena_(std::move(arena)) {}
  ~ArenaLease();
  ArenaLease(ArenaLease&&) = default;
  ArenaLease& operator=(ArenaLease&&) = delete;

  Arena* operator->() const { return arena_.get(); }
  Arena& operator*() const { return *arena_; }

 private:
  ArenaPool* pool_;  // NULL: the arena ends with the lease
  IdleArenas* home_;
  std::unique_ptr<Arena> arena_;
};

class ArenaPool {
 public:
  // The process's pool.
  static ArenaPool& instance();

  // The most recently used idle arena of the stream, or a new one.
  ArenaLease lease(c10::Stream stream, c10::Allocator* allocator);
  // An arena of its own for a call that a user captures into a CUDA graph: its memory has to belong
  // to the graph's private pool, and no later call may write into it.
  static ArenaLease lease_private(c10::Stream stream, c10::Allocator* allocator);

  // Gives the memory of all idle arenas back to PyTorch's allocator.
  void clear();
  // Bytes that idle arenas hold.
  uint64_t idle_bytes();

 private:
  friend class ArenaLease;
  IdleArenas& of(c10::Stream stream);
  void give_back(IdleArenas& home, std::unique_ptr<Arena> arena);

  std::mutex mutex_;
  // One entry per stream that ever ran a program; the latest stream first. Entries stay where they
  // are: leases point at them.
  std::vector<std::unique_ptr<IdleArenas>> idle_;
};

}  // namespace trident::host
