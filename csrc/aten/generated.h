// The seam between the registry and the files that generate.py writes.
#pragma once

#include <vector>

#include "aten/registry.h"
#include "aten/with_views.h"

namespace trident::aten {

// Every typed operator, in no particular order; defined in the generated typed_ops.cpp.
std::vector<TypedOp> generated_ops();

// For the tables in generated files.
template <typename Shim>
void* address(Shim* shim) {
  return reinterpret_cast<void*>(shim);
}

}  // namespace trident::aten
