// A host program captured into a CUDA graph: one launch instead of one per kernel.
//
// The graph's kernels have fixed addresses, but for those of Triton launches, which can be pointed at
// inputs and outputs that nothing but launches touches. Other inputs that the program only reads and
// that are small, or that kept moving, are copied into the graph's own tensors by its first kernels
// (staged); all others must lie where they lay at capture. Its last kernels copy other outputs out into
// fresh tensors, so that they are the caller's to keep. Copies are launches whose parameters are known,
// too. Where launches read and write is set before each replay, if it changed.
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
#include "driver/graph_kernels.h"
#include "host/captured_launch.h"
#include "host/tensor.h"

namespace trident::host {

class GraphReplay {
 public:
  // How an input reaches the graph's kernels.
  struct CapturedInput {
    TensorRef own;      // of a staged input, the copy; else NULL
    TensorRef callers;  // what the graph was captured with
    bool argument;  // of the call; else of the state, whose version says whether it may have moved
    bool pointed;   // launches are pointed at it; else, if it is not staged, it must not move
    bool written;   // the program may write it: it is not staged
    // A Triton launch takes it, and may read all of its storage, so that a copy only serves an input
    // that is its whole storage.
    bool launched;
    size_t alignment;  // what addresses of a staged input have to be multiples of
  };
  // A dense output without relatives; `callers` is a copy, NULL where launches are pointed at it.
  struct CapturedOutput {
    TensorRef own;
    TensorRef callers;
  };

  // `graph`: what was captured (cudaGraph_t), which `owner` keeps alive with its memory; it is replayed
  // on `stream`. `launches`: what Program::capture noted; `copies`: of staged inputs and outputs with
  // `callers`. `allocator`: of fresh outputs. RuntimeError where the graph does not have the launches,
  // or the driver cannot instantiate it or change them.
  GraphReplay(driver::CudaLibrary& library, c10::Allocator* allocator, void* graph,
              std::shared_ptr<void> owner, c10::Stream stream,
              const std::vector<CapturedInput>& inputs, const std::vector<CapturedOutput>& outputs,
              const std::vector<CapturedLaunch>& launches,
              const std::vector<CapturedLaunch>& copies);

  // Whether a call with these inputs, on the current stream, can be served by a replay, for which the
  // calling thread then has a context. Where it cannot, adds to `moved` the inputs that lie elsewhere and
  // must not. Inputs of the state lie where they lay in the last call with the same version of it; 0
  // stands for no version. Calls are serialized by the interpreter lock.
  bool matches(const trident_tensor* inputs, uint64_t state_version, std::set<size_t>& moved);
  // Replays the graph and appends fresh outputs; false, with nothing launched, where the driver cannot
  // reach an input or output from the graph. Calls are serialized: they share the graph's tensors.
  bool replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs);

  uint64_t replays() const { return replays_.load(std::memory_order_relaxed); }

 private:
  // A launch's parameter with an address in a tensor, `distance` bytes from its first element.
  struct Pointer {
    size_t number;
    uintptr_t distance;
  };
  struct Input {
    TensorRef own;      // of a staged input: what the graph copies it to
    uintptr_t address;  // where the graph reads it, at present
    bool fixed;         // neither staged nor pointed
    bool launched;
    size_t bytes;  // of a staged input
    size_t alignment;
    std::vector<Pointer> pointers;
  };
  struct Output {
    c10::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    std::vector<Pointer> pointers;
  };
  struct Range {
    uintptr_t begin;
    uintptr_t end;
    bool meets(uintptr_t from, size_t bytes) const { return from < end && begin < from + bytes; }
  };
  // Whether inputs are where the graph reads them, or can be brought there.
  bool serves(const std::vector<size_t>& which, const trident_tensor* inputs,
              std::set<size_t>& moved) const;
  static Range storage_of(const c10::TensorImpl& tensor);
  // A launch's parameter that later replays set, in the memory that begins at `start`.
  void note(const CapturedLaunch& launch, const CapturedLaunch::Pointer& pointer, uintptr_t start);
  bool meets_written(const trident_tensor* inputs, uintptr_t from, size_t bytes) const;
  void point(const std::vector<Pointer>& pointers, uintptr_t address);
  bool can_be_copied(const Input& input, const c10::TensorImpl& given,
                     const trident_tensor* inputs) const;
  bool give_outputs(std::vector<TensorRef>& outputs);

  driver::CudaLibrary& library_;
  c10::Allocator* allocator_;
  std::shared_ptr<void> owner_;  // outlives what was made of the graph
  driver::GraphKernels kernels_;
  c10::Stream stream_;
  std::vector<Input> inputs_;
  std::vector<size_t> arguments_, others_;  // of the call, and of the state
  std::vector<size_t> movable_;             // not fixed
  uint64_t state_version_ = 0;              // the last one whose inputs are there
  std::vector<Output> outputs_;
  std::vector<Range> written_;           // storages that the program writes, where they are fixed
  std::vector<size_t> written_pointed_;  // inputs that it writes wherever they lie
  std::mutex mutex_;
  std::atomic<uint64_t> replays_{0};
};

}  // namespace trident::host
