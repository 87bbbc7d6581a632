#include "driver/graph_copies.h"

#include <c10/util/Exception.h>

namespace trident::driver {
namespace {

constexpr const char* kAbout = "a captured graph";

bool is_flat(const cuda::MemcpyParams& params) { return params.height <= 1 && params.depth <= 1; }

uintptr_t address_of(const cuda::MemcpyEnd& end) { return end.device + end.x_bytes; }

void set_address(cuda::MemcpyEnd& end, uintptr_t address) {
  end.device = address;
  end.x_bytes = 0;
}

}  // namespace

GraphCopies::GraphCopies(CudaLibrary& library, void* graph, void* exec)
    : library_(library), exec_(exec) {
  const cuda::CudaApi& api = library.api();
  library.check(api.context_get_current(&context_), "cuCtxGetCurrent", kAbout);
  size_t count = 0;
  library.check(api.graph_get_nodes(graph, nullptr, &count), "cuGraphGetNodes", kAbout);
  std::vector<cuda::GraphNode> nodes(count);
  library.check(api.graph_get_nodes(graph, nodes.data(), &count), "cuGraphGetNodes", kAbout);
  for (const cuda::GraphNode node : nodes) {
    int type = 0;
    library.check(api.graph_node_get_type(node, &type), "cuGraphNodeGetType", kAbout);
    if (type != cuda::kGraphNodeMemcpy) continue;
    Copy copy{node, {}};
    library.check(api.graph_memcpy_node_get_params(node, &copy.params),
                  "cuGraphMemcpyNodeGetParams", kAbout);
    if (is_flat(copy.params)) copies_.push_back(copy);
  }
}

size_t GraphCopies::find(uintptr_t from, uintptr_t to, size_t bytes) {
  size_t found = copies_.size();
  for (size_t index = 0; index < copies_.size(); ++index) {
    const cuda::MemcpyParams& params = copies_[index].params;
    if (params.width_bytes != bytes || address_of(params.source) != from ||
        address_of(params.target) != to) {
      continue;
    }
    TORCH_CHECK(found == copies_.size(), "the captured graph has two copies of ", bytes,
                " bytes between the same places");
    found = index;
  }
  TORCH_CHECK(found < copies_.size(), "a copy of ", bytes, " bytes is not in the captured graph");
  TORCH_CHECK(update(copies_[found], copies_[found].params),
              "the driver cannot move a copy in a captured graph");
  return found;
}

bool GraphCopies::move_source(size_t copy, uintptr_t from) {
  Copy& moved = copies_[copy];
  if (address_of(moved.params.source) == from) return true;
  cuda::MemcpyParams params = moved.params;
  set_address(params.source, from);
  return update(moved, params);
}

bool GraphCopies::move_target(size_t copy, uintptr_t to) {
  Copy& moved = copies_[copy];
  if (address_of(moved.params.target) == to) return true;
  cuda::MemcpyParams params = moved.params;
  set_address(params.target, to);
  return update(moved, params);
}

bool GraphCopies::update(Copy& copy, const cuda::MemcpyParams& params) {
  if (library_.api().graph_exec_memcpy_node_set_params(exec_, copy.node, &params, context_) !=
      cuda::kSuccess) {
    return false;
  }
  copy.params = params;
  return true;
}

}  // namespace trident::driver
