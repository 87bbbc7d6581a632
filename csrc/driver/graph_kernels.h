// A captured CUDA graph, instantiated, whose kernels' pointers can be changed between replays.
//
// The layout of a Triton kernel's parameters is known, so that it can work on the caller's memory
// wherever that lies; a copy would cost the device more than the host spends here.
//
// A kernel that the driver was told to change takes the device 0.26 us more than one that is as it was
// when the graph was instantiated (H200, driver 580). Addresses that stay for some replays are therefore
// written into the graph, and that is instantiated anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "driver/cuda.h"

namespace trident::driver {

class GraphKernels {
 public:
  // Of a graph (CUgraph), which outlives this, and which nothing else may use meanwhile.
  GraphKernels(CudaLibrary& library, void* graph) : library_(library), graph_(graph) {}
  GraphKernels(const GraphKernels&) = delete;
  GraphKernels& operator=(const GraphKernels&) = delete;
  ~GraphKernels();

  // The number of parameter `param` of a kernel's node, which takes `num_params` and holds `address`
  // there; a RuntimeError where it does not, or the driver cannot change it.
  size_t find(cuda::GraphNode node, size_t num_params, uint32_t param, uintptr_t address);

  // Makes the graph executable, after all that can be pointed elsewhere has been found; a RuntimeError
  // where the driver cannot.
  void instantiate();

  // Gives a parameter another address in later replays.
  void point(size_t pointer, uintptr_t address);

  // Before each replay: tells the driver what was pointed elsewhere, by one call per kernel. False if
  // it refuses one: nothing may be replayed then until a later call has succeeded.
  bool update();

  // What to replay (CUgraphExec), until the next update.
  void* exec() const { return exec_; }

 private:
  struct Kernel {
    cuda::GraphNode node;
    cuda::KernelNodeParams params{};
    std::vector<void*> arguments{};  // where each parameter's value is read
    bool known = false;              // that they are there
    bool changed = false;
  };
  struct Pointer {
    size_t kernel;
    uint32_t param;
    uint64_t value;
  };
  size_t kernel_of(cuda::GraphNode node, size_t num_params);
  // Where the node's parameters are now.
  cuda::Result read(size_t kernel);
  cuda::KernelNodeParams params_of(const Kernel& kernel) const;
  bool update_changed();
  cuda::Result write_into_graph(size_t kernel);
  cuda::Result instantiate_anew();

  CudaLibrary& library_;
  void* graph_;
  void* exec_ = nullptr;
  std::vector<Kernel> kernels_;
  std::deque<Pointer> pointers_;  // their addresses are given to the driver
  bool changed_ = false;
  bool fresh_ = true;      // no kernel has changed since the graph was instantiated
  uint32_t stayed_ = 0;    // replays with the same addresses
  uint32_t patience_ = 0;  // so many are needed to instantiate the graph anew
};

}  // namespace trident::driver
