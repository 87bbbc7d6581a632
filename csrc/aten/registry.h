// The typed operators: one C function per ATen overload and device, generated at build time for the
// installed torch. Signatures follow docs/design.md, section 8.
//
// Shims expect their caller to hold an at::AutoDispatchBelowADInplaceOrView guard: some of them, and
// the kernels they reach, call further operators through the dispatcher.
#pragma once

#include <span>
#include <string_view>

namespace trident::aten {

struct TypedOp {
  const char* name;    // "mm.out" or "relu"
  const char* schema;  // as in native_functions.yaml, without the namespace
  void* cpu;           // NULL where the device has no kernel
  void* cuda;
};

// All typed operators, ordered by name.
std::span<const TypedOp> typed_ops();

// NULL where there is no such operator.
const TypedOp* find_typed(std::string_view name);

// The shim's address for "cpu" or "cuda"; throws c10::Error where there is none.
void* resolve_typed(const char* name, const char* device);

}  // namespace trident::aten
