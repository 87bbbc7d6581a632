// Kernels inside an instantiated CUDA graph whose pointers can be changed between replays.
//
// The layout of a Triton kernel's parameters is known, so that it can work on the caller's memory
// wherever that lies; a copy would cost the device more than the host spends here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "driver/cuda.h"

namespace trident::driver {

class GraphKernels {
 public:
  // Of the graph that `exec` (CUgraphExec) was instantiated from, which outlives this.
  GraphKernels(CudaLibrary& library, void* exec) : library_(library), exec_(exec) {}

  // The number of parameter `param` of a kernel's node, which takes `num_params` and holds `address`
  // there; a RuntimeError where it does not, or the driver cannot change it.
  size_t find(cuda::GraphNode node, size_t num_params, uint32_t param, uintptr_t address);

  // Gives a parameter another address in later replays.
  void point(size_t pointer, uintptr_t address);

  // Tells the driver what was pointed elsewhere, by one call per kernel. False if it refuses one:
  // nothing may be replayed then until a later call has succeeded.
  bool update();

 private:
  struct Kernel {
    cuda::GraphNode node;
    cuda::KernelNodeParams params;
    std::vector<void*> arguments;  // where each parameter's value is read
    bool changed = false;
  };
  struct Pointer {
    size_t kernel;
    uint64_t value;
  };
  Kernel& kernel_of(cuda::GraphNode node, size_t num_params, size_t& index);
  bool update(const Kernel& kernel);

  CudaLibrary& library_;
  void* exec_;
  std::vector<Kernel> kernels_;
  std::deque<Pointer> pointers_;  // their addresses are given to the driver
  bool changed_ = false;
};

}  // namespace trident::driver
