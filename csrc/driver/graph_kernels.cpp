#include "driver/graph_kernels.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace trident::driver {
namespace {

// Instantiating takes the host some 30 us and a little more per node, what a handful of calls cost.
// Where addresses move again, the next time takes twice as many replays.
constexpr uint32_t kFirstPatience = 8;  // of a graph whose addresses have not moved yet
constexpr uint32_t kLastPatience = 1 << 16;
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

// In larger graphs the kernels that are pointed elsewhere are few among many.
constexpr size_t kMostNodes = 64;

// Lets this thread do what would break a capture that goes on in any thread: it touches no stream.
class Unobserved {
 public:
  explicit Unobserved(const cuda::CudaApi& api) : api_(api) {
    exchanged_ = api_.thread_exchange_capture_mode(&mode_) == cuda::kSuccess;
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
  ~Unobserved() {
    if (exchanged_) api_.thread_exchange_capture_mode(&mode_);
  }

 private:
  const cuda::CudaApi& api_;
  int mode_ = cuda::kStreamCaptureRelaxed;
  bool exchanged_;
};

}  // namespace

GraphKernels::~GraphKernels() {
  // The driver frees it once a replay that is under way has ended.
  if (exec_) library_.api().graph_exec_destroy(exec_);
}

size_t GraphKernels::kernel_of(cuda::GraphNode node, size_t num_params) {
  for (size_t index = 0; index < kernels_.size(); ++index) {
    if (kernels_[index].node == node) return index;
  }
  Kernel kernel{node};
  kernel.arguments.resize(num_params);
  kernels_.push_back(std::move(kernel));
  library_.check(read(kernels_.size() - 1), "cuGraphKernelNodeGetParams", "a captured graph");
  return kernels_.size() - 1;
}

cuda::Result GraphKernels::read(size_t index) {
  Kernel& kernel = kernels_[index];
  const cuda::Result result =
      library_.api().graph_kernel_node_get_params(kernel.node, &kernel.params);
  kernel.known = result == cuda::kSuccess;
  if (!kernel.known) return result;
  TORCH_CHECK(kernel.params.params != nullptr, "a captured kernel does not show its parameters");
  std::copy_n(kernel.params.params, kernel.arguments.size(), kernel.arguments.begin());
  for (Pointer& pointer : pointers_) {
    if (pointer.kernel == index) kernel.arguments.at(pointer.param) = &pointer.value;
  }
  return result;
}

size_t GraphKernels::find(cuda::GraphNode node, size_t num_params, uint32_t param,
                          uintptr_t address) {
  const size_t index = kernel_of(node, num_params);
  Kernel& kernel = kernels_[index];
  uint64_t value = 0;
  std::memcpy(&value, kernel.arguments.at(param), sizeof(value));
  TORCH_CHECK(value == address, "parameter ", param,
              " of a captured kernel is not the address that it was launched with");
  kernel.arguments[param] = &pointers_.emplace_back(Pointer{index, param, value}).value;
  TORCH_CHECK(write_into_graph(index) == cuda::kSuccess,
              "the driver cannot change a kernel in a captured graph");
  return pointers_.size() - 1;
}

cuda::KernelNodeParams GraphKernels::params_of(const Kernel& kernel) const {
  cuda::KernelNodeParams params = kernel.params;
  params.params = const_cast<void**>(kernel.arguments.data());
  return params;
}

cuda::Result GraphKernels::write_into_graph(size_t index) {
  Kernel& kernel = kernels_[index];
  const cuda::KernelNodeParams params = params_of(kernel);
  const cuda::Result result = library_.api().graph_kernel_node_set_params(kernel.node, &params);
  if (result != cuda::kSuccess) return result;
  // The values that the driver showed before lay in memory of the node's, which it may have replaced.
  return read(index);
}

void GraphKernels::instantiate() {
  size_t nodes = 0;
  library_.check(library_.api().graph_get_nodes(graph_, nullptr, &nodes), "cuGraphGetNodes",
                 "a captured graph");
  library_.check(instantiate_anew(), "cuGraphInstantiateWithFlags", "a captured graph");
  patience_ = nodes <= kMostNodes ? kFirstPatience : kNever;
}

cuda::Result GraphKernels::instantiate_anew() {
  const Unobserved unobserved(library_.api());
  void* exec = nullptr;
  // As PyTorch instantiates its graphs.
  const cuda::Result result =
      library_.api().graph_instantiate(&exec, graph_, cuda::kGraphAutoFreeOnLaunch);
  if (result != cuda::kSuccess) return result;
  if (exec_) library_.api().graph_exec_destroy(exec_);
  exec_ = exec;
  fresh_ = true;
  return result;
}

void GraphKernels::point(size_t pointer, uintptr_t address) {
  if (pointers_[pointer].value == address) return;
  pointers_[pointer].value = address;
  kernels_[pointers_[pointer].kernel].changed = changed_ = true;
}

bool GraphKernels::update() {
  if (changed_) return update_changed();
  if (fresh_ || patience_ == kNever || ++stayed_ < patience_) [[likely]]
    return true;
  cuda::Result result = cuda::kSuccess;
  for (size_t index = 0; index < kernels_.size() && result == cuda::kSuccess; ++index)
    result = write_into_graph(index);
  if (result == cuda::kSuccess) result = instantiate_anew();
  // What has been replayed until now serves on.
  if (result != cuda::kSuccess) patience_ = kNever;
  return true;
}

bool GraphKernels::update_changed() {
  for (size_t index = 0; index < kernels_.size(); ++index) {
    Kernel& kernel = kernels_[index];
    if (!kernel.changed) continue;
    if (!kernel.known && read(index) != cuda::kSuccess) return false;
    const cuda::KernelNodeParams params = params_of(kernel);
    if (library_.api().graph_exec_kernel_node_set_params(exec_, kernel.node, &params) !=
        cuda::kSuccess)
      return false;
    kernel.changed = false;
  }
  changed_ = false;
  stayed_ = 0;
  if (fresh_ && patience_ != kNever) patience_ = std::min(2 * patience_, kLastPatience);
  fresh_ = false;
  return true;
}

}  // namespace trident::driver
