// What became of a Triton launch that was captured into a CUDA graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/cuda_api.h"

namespace trident::host {

struct CapturedLaunch {
  // A parameter that holds an address in the memory of an input or output that only launches touch.
  struct Pointer {
    int32_t source;  // TRIDENT_PARAM_INPUT or TRIDENT_PARAM_OUTPUT
    size_t index;    // of the input or output
    uint32_t param;  // in the kernel's order
    uintptr_t address;
  };
  driver::cuda::GraphNode node;
  size_t num_params;  // of the kernel, the scratch addresses among them
  std::vector<Pointer> pointers;
};

}  // namespace trident::host
