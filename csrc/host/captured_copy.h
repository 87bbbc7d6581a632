// Copies in a CUDA graph that is being captured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/cuda.h"
#include "host/captured_launch.h"

namespace trident::host {

// A copy of memory by rows of some size, which the kernel knows.
struct MemoryCopy {
  uintptr_t to;
  uintptr_t from;
  uint64_t rows;
  uint32_t blocks;  // of the launch
};

// The side of a copy that later replays move.
struct MovedSide {
  int32_t source;  // TRIDENT_PARAM_INPUT: what is read; TRIDENT_PARAM_OUTPUT: what is written
  size_t index;    // of the program's input or output
};

// Enqueues a copy on a stream that is being captured, by a kernel that takes the two addresses and the
// number of rows. Errors are the driver's.
CapturedLaunch capture_copy(driver::CudaKernel& kernel, int device, driver::cuda::Stream stream,
                            const MemoryCopy& copy, MovedSide moved);

}  // namespace trident::host
