#include "aten/registry.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "aten/generated.h"

namespace trident::aten {
namespace {

std::string_view name_of(const TypedOp& op) { return op.name; }

const std::vector<TypedOp>& sorted_ops() {
  static const std::vector<TypedOp> ops = [] {
    std::vector<TypedOp> all = generated_ops();
    std::ranges::sort(all, {}, name_of);
    return all;
  }();
  return ops;
}

}  // namespace

std::span<const TypedOp> typed_ops() { return sorted_ops(); }

const TypedOp* find_typed(std::string_view name) {
  const std::vector<TypedOp>& ops = sorted_ops();
  const auto found = std::ranges::lower_bound(ops, name, {}, name_of);
  return found != ops.end() && name_of(*found) == name ? &*found : nullptr;
}

void* resolve_typed(const char* name, const char* device) {
  const TypedOp* op = find_typed(name);
  TORCH_CHECK(op != nullptr, "aten::", name,
              " has no typed shim in this build; call it through the dispatcher instead");
  const std::string_view kind = device;
  TORCH_CHECK(kind == "cpu" || kind == "cuda",
              "typed operators exist for \"cpu\" and \"cuda\", not for \"", device, "\"");
  void* shim = kind == "cpu" ? op->cpu : op->cuda;
  TORCH_CHECK(shim != nullptr, "aten::", name, " has no typed shim for ", device,
              "; the installed torch has no kernel for it there");
  return shim;
}

}  // namespace trident::aten
