#include "driver/graph_copies.h"

#include <c10/util/Exception.h>

namespace trident::driver {
namespace {

constexpr const char* kAbout = "a captured graph";

bool is_flat(const cuda::MemcpyParams& params) { return params.height <= 1 && params.depth <= 1; }

uintptr_t address_of(const cuda::MemcpyEnd& end) { return end.device + end.x_bytes; }

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
  return move(copies_[copy], &cuda::MemcpyParams::source, from);
}

bool GraphCopies::move_target(size_t copy, uintptr_t to) {
  return move(copies_[copy], &cuda::MemcpyParams::target, to);
}

bool GraphCopies::move(Copy& copy, cuda::MemcpyEnd cuda::MemcpyParams::* end, uintptr_t address) {
  if (address_of(copy.params.*end) == address) return true;
  cuda::MemcpyParams params = copy.params;
  (params.*end).device = address;
  (params.*end).x_bytes = 0;
  return update(copy, params);
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
