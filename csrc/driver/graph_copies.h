// Copies inside an instantiated CUDA graph whose one end can be moved between replays.
//
// A copy that is enqueued beside the graph costs several times what the graph itself costs: the graph
// has to be chained to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/cuda.h"

namespace trident::driver {

class GraphCopies {
 public:
  // The copies of `graph` (CUgraph), which `exec` (CUgraphExec) was instantiated from. The graph's
  // context is current.
  GraphCopies(CudaLibrary& library, void* graph, void* exec);

  // The number of the copy of `bytes` bytes between these addresses. RuntimeError if there is none,
  // if there are two (memory is reused inside a graph), or if the driver cannot move it.
  size_t find(uintptr_t from, uintptr_t to, size_t bytes);

  // Moves one end of a copy for later replays; false if the driver cannot, which changes nothing.
  // Costs a comparison where the end lies there already.
  bool move_source(size_t copy, uintptr_t from);
  bool move_target(size_t copy, uintptr_t to);

 private:
  struct Copy {
    cuda::GraphNode node;
    cuda::MemcpyParams params;
  };
  bool move(Copy& copy, cuda::MemcpyEnd cuda::MemcpyParams::* end, uintptr_t address);
  bool update(Copy& copy, const cuda::MemcpyParams& params);

  CudaLibrary& library_;
  void* exec_;
  cuda::Context context_ = nullptr;
  std::vector<Copy> copies_;
};

}  // namespace trident::driver
