// A host program captured into a CUDA graph: one launch instead of one per kernel.
//
// The graph's kernels have fixed addresses. Inputs that the program only reads and that are small, or
// that kept moving, are copied into the graph's own tensors by its first nodes (staged); all others must
// lie where they lay at capture. Its last nodes copy the outputs out into fresh tensors, so that they are
// the caller's to keep. Where these copies read and write is set before each replay.
//
// The graph's own memory, outputs too, holds nothing between replays: all graphs of one stream share
// it, since replays on one stream never overlap. Only addresses of it are kept here, and nothing of
// the caller's is kept alive.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "abi/abi.h"
#include "driver/cuda.h"
#include "driver/graph_copies.h"
#include "host/tensor.h"

namespace trident::host {

class GraphReplay {
 public:
  // A tensor of the graph's own and the caller's that it is copied from or to; `own` is NULL for an
  // input that must not move.
  struct Pair {
    TensorRef own;
    TensorRef callers;
  };

  // `graph`, `exec`: what was captured (cudaGraph_t) and instantiated (cudaGraphExec_t), which `owner`
  // keeps alive with its memory; it is replayed on `stream`.
  // `inputs`: what it was captured with; `written[i]`: the program may write input i, which then has
  // no tensor of the graph's own; `launched[i]`: a Triton launch takes input i, and may read all of its
  // storage, so that a copy only serves an input that is its whole storage.
  // `outputs`: what it writes, dense and without relatives.
  // `allocator`: of fresh outputs.
  // RuntimeError where the graph does not have the copies, or the driver cannot move them.
  GraphReplay(driver::CudaLibrary& library, c10::Allocator* allocator, void* graph, void* exec,
              std::shared_ptr<void> owner, c10::Stream stream, const std::vector<Pair>& inputs,
              const std::vector<bool>& written, const std::vector<bool>& launched,
              const std::vector<Pair>& outputs);

  // Whether a call with these inputs, on the current stream, can be served by a replay. Where it cannot,
  // adds to `moved` the inputs that lie elsewhere and must not.
  bool matches(const trident_tensor* inputs, std::set<size_t>& moved);
  // Replays the graph and appends fresh outputs; false, with nothing launched, where the driver cannot
  // reach an input or output from the graph. Calls are serialized: they share the graph's tensors.
  bool replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs);

  uint64_t replays() const { return replays_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kNoCopy = SIZE_MAX;  // of no elements

  struct Input {
    TensorRef own;  // of a staged input: what the graph reads
    void* address;  // of one that must not move
    size_t bytes;   // of a staged input
    size_t copy;
    bool launched;
  };
  struct Output {
    size_t copy;
    c10::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  struct Range {
    uintptr_t begin;
    uintptr_t end;
  };
  size_t find_copy(const c10::TensorImpl& from, const c10::TensorImpl& to);

  driver::CudaLibrary& library_;
  c10::Allocator* allocator_;
  void* exec_;
  driver::GraphCopies copies_;
  std::shared_ptr<void> owner_;
  c10::Stream stream_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Range> written_;  // the storages that the program writes
  std::mutex mutex_;
  std::atomic<uint64_t> replays_{0};
};

}  // namespace trident::host
