#include "driver/graph_kernels.h"

#include <c10/util/Exception.h>

#include <cstring>

namespace trident::driver {

GraphKernels::Kernel& GraphKernels::kernel_of(cuda::GraphNode node, size_t num_params,
                                              size_t& index) {
  for (index = 0; index < kernels_.size(); ++index) {
    if (kernels_[index].node == node) return kernels_[index];
  }
  Kernel kernel{node, {}, {}};
  library_.check(library_.api().graph_kernel_node_get_params(node, &kernel.params),
                 "cuGraphKernelNodeGetParams", "a captured graph");
  TORCH_CHECK(kernel.params.params != nullptr, "a captured kernel does not show its parameters");
  kernel.arguments.assign(kernel.params.params, kernel.params.params + num_params);
  return kernels_.emplace_back(std::move(kernel));
}

size_t GraphKernels::find(cuda::GraphNode node, size_t num_params, uint32_t param,
                          uintptr_t address) {
  size_t index = 0;
  Kernel& kernel = kernel_of(node, num_params, index);
  uint64_t value = 0;
  std::memcpy(&value, kernel.arguments.at(param), sizeof(value));
  TORCH_CHECK(value == address, "parameter ", param,
              " of a captured kernel is not the address that it was launched with");
  kernel.arguments[param] = &pointers_.emplace_back(Pointer{index, value}).value;
  TORCH_CHECK(update(kernel), "the driver cannot change a kernel in a captured graph");
  return pointers_.size() - 1;
}

void GraphKernels::point(size_t pointer, uintptr_t address) {
  if (pointers_[pointer].value == address) return;
  pointers_[pointer].value = address;
  kernels_[pointers_[pointer].kernel].changed = changed_ = true;
}

bool GraphKernels::update() {
  if (!changed_) [[likely]]
    return true;
  for (Kernel& kernel : kernels_) {
    if (!kernel.changed) continue;
    if (!update(kernel)) return false;
    kernel.changed = false;
  }
  changed_ = false;
  return true;
}

bool GraphKernels::update(const Kernel& kernel) {
  cuda::KernelNodeParams params = kernel.params;
  params.params = const_cast<void**>(kernel.arguments.data());
  return library_.api().graph_exec_kernel_node_set_params(exec_, kernel.node, &params) ==
         cuda::kSuccess;
}

}  // namespace trident::driver
