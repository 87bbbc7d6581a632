#include "host/captured_copy.h"

#include <c10/util/Exception.h>

#include <array>

#include "abi/abi.h"

namespace trident::host {

CapturedLaunch capture_copy(driver::CudaKernel& kernel, int device, driver::cuda::Stream stream,
                            const MemoryCopy& copy, MovedSide moved) {
  TORCH_CHECK(kernel.params().size() == 3, "a copy's kernel takes two addresses and a number");
  const std::array<uint64_t, 3> values = {copy.to, copy.from, copy.rows};
  const std::array<uint32_t, 3> grid = {copy.blocks, 1, 1};
  driver::CudaLaunch launch(kernel, device, values.data());
  launch.run(grid.data(), stream);
  const uint32_t param = moved.source == TRIDENT_PARAM_INPUT ? 1 : 0;
  return {kernel.library().last_captured(stream),
          launch.num_params(),
          {{moved.source, moved.index, param, static_cast<uintptr_t>(values[param])}}};
}

}  // namespace trident::host
