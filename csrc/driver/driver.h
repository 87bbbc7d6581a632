// The seam between host programs and what executes their launches. A backend is a kernel type with
// a launch type; which of them a launch uses is known when its frame is made, and a call goes
// straight to it.
#pragma once

#include <concepts>
#include <utility>
#include <variant>

#include "driver/cpu.h"
#include "driver/cuda.h"

namespace trident::driver {

template <typename K>
concept KernelBackend = std::derived_from<K, Kernel> &&
                        std::constructible_from<typename K::Launch, K&, int, const uint64_t*> &&
                        std::move_constructible<typename K::Launch> &&
                        requires(K& kernel, typename K::Launch& launch, int device,
                                 const uint32_t* grid, void* stream) {
                          { K::kBackend } -> std::convertible_to<Backend>;
                          { kernel.load(device) } -> std::same_as<void>;
                          { launch.run(grid, stream) } -> std::same_as<void>;
                        };

static_assert(KernelBackend<CudaKernel>);
static_assert(KernelBackend<CpuKernel>);

// A source of CUDA's entry points: libcuda, or a fake that records calls.
template <typename L>
concept CudaDriverLibrary = requires(const L& library) {
  { library.api() } -> std::same_as<const cuda::CudaApi&>;
};

static_assert(CudaDriverLibrary<CudaLibrary>);

using Launch = std::variant<CudaLaunch, CpuLaunch>;

// A launch of `kernel` on a device, reading its parameters from `values`.
inline Launch make_launch(Kernel& kernel, int device, const uint64_t* values) {
  if (kernel.backend() == Backend::kCuda)
    return CudaLaunch(static_cast<CudaKernel&>(kernel), device, values);
  return CpuLaunch(static_cast<CpuKernel&>(kernel), device, values);
}

inline void run_launch(Launch& launch, const uint32_t* grid, void* stream) {
  if (CudaLaunch* cuda_launch = std::get_if<CudaLaunch>(&launch)) [[likely]] {
    cuda_launch->run(grid, stream);
  } else {
    std::get_if<CpuLaunch>(&launch)->run(grid, stream);
  }
}

}  // namespace trident::driver
