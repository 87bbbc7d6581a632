// The seam between the registry and the files that generate.py writes.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>
#include <vector>

#include "abi/error.h"
#include "aten/registry.h"

namespace trident::aten {

// `abi::guarded` for an operator that neither writes to its arguments nor hands out views of them: what
// views its kernel takes on the way is not recorded, as in eager.
template <typename Body>
inline trident_status guarded_below_views(Body&& body) noexcept {
  return abi::guarded([&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::forward<Body>(body)();
  });
}

// Every typed operator, in no particular order; defined in the generated typed_ops.cpp.
std::vector<TypedOp> generated_ops();

// For the tables in generated files.
template <typename Shim>
void* address(Shim* shim) {
  return reinterpret_cast<void*>(shim);
}

}  // namespace trident::aten
