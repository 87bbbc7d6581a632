// A host program captured into a CUDA graph: one launch instead of one per kernel.
//
// The graph has fixed addresses. Inputs that the program only reads and that are small are copied
// into the graph's own tensors before each replay (staged); all others must lie where they lay at
// capture. Outputs are copied out into fresh tensors, so that they are the caller's to keep.
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
#include <vector>

#include "abi/abi.h"
#include "driver/cuda.h"
#include "host/tensor.h"

namespace trident::host {

class GraphReplay {
 public:
  // `exec`: the instantiated graph (cudaGraphExec_t), which `owner` keeps alive with its memory; it
  // is replayed on `stream`.
  // `inputs`: the tensors it was captured with; `staged[i]`: input i is the graph's own;
  // `written[i]`: the program may write input i, which is then not staged.
  // `outputs`: the tensors it writes, dense and without relatives.
  // `allocator`: of fresh outputs.
  GraphReplay(driver::CudaLibrary& library, c10::Allocator* allocator, void* exec,
              std::shared_ptr<void> owner, c10::Stream stream, std::vector<TensorRef> inputs,
              const std::vector<bool>& staged, const std::vector<bool>& written,
              std::vector<TensorRef> outputs);

  // Whether a call with these inputs, on the current stream, can be served by a replay.
  bool matches(const trident_tensor* inputs);
  // Replays the graph and appends fresh outputs. Calls are serialized: they share the tensors.
  void replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs);

  uint64_t replays() const { return replays_.load(std::memory_order_relaxed); }

 private:
  struct Input {
    TensorRef own;  // of a staged input: what the graph reads; NULL for one that must not move
    void* address;
    size_t bytes;  // of a staged input
  };
  struct Output {
    void* address;
    size_t bytes;
    c10::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  struct Range {
    uintptr_t begin;
    uintptr_t end;
  };
  void copy(void* to, const void* from, size_t bytes, void* stream);

  driver::CudaLibrary& library_;
  c10::Allocator* allocator_;
  void* exec_;
  std::shared_ptr<void> owner_;
  c10::Stream stream_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Range> written_;  // the storages that the program writes
  std::mutex mutex_;
  std::atomic<uint64_t> replays_{0};
};

}  // namespace trident::host
