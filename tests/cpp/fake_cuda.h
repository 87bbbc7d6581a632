// A CUDA driver that executes nothing and records what it was asked to do.
#pragma once

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace trident::test {

struct RecordedLaunch {
  driver::cuda::LaunchConfig config;
  std::vector<driver::cuda::LaunchAttribute> attributes;
  driver::cuda::Function function;
  std::vector<uint64_t>
      values;  // as many as FakeCuda::num_values says, with the two scratch addresses
};

// What cuTensorMapEncodeTiled was given, innermost axis first.
struct RecordedTensorMap {
  int type, swizzle, fill;
  uint64_t address;
  std::vector<uint64_t> sizes, strides;
  std::vector<uint32_t> block;
};

// A node of the graph that the driver is asked about.
struct FakeNode {
  std::vector<uint64_t> values{};  // of a kernel's parameters
  std::vector<void*> pointers{};   // to them, once the driver was asked
};

class FakeCuda {
 public:
  FakeCuda() { state() = State{}; }

  void set_graph(std::vector<FakeNode> nodes) { state().graph = std::move(nodes); }
  // What an instantiated graph gives to each of its kernels.
  const std::vector<std::vector<uint64_t>>& values(void* exec) const {
    return state().execs.at(reinterpret_cast<uintptr_t>(exec));
  }
  size_t num_execs() const { return state().execs.size(); }
  int capture_mode() const { return state().capture_mode; }
  driver::cuda::GraphNode node(size_t index) const {
    return reinterpret_cast<driver::cuda::GraphNode>(&state().graph[index]);
  }
  // Streams are being captured, up to these nodes of the graph.
  void capture_up_to(const std::vector<size_t>& nodes) {
    state().capturing = true;
    state().ends.clear();
    for (const size_t index : nodes) state().ends.push_back(node(index));
  }

  // What the next launches are expected to pass: the kernel's parameters and two scratch addresses.
  void expect_params(size_t count) { state().num_values = count + 2; }
  // Fails the next call of an entry point with a code of CUDA's.
  void fail_next(const std::string& entry, driver::cuda::Result code) {
    state().failing = entry;
    state().failure = code;
  }
  void set_max_shared(int bytes) { state().max_shared = bytes; }

  const std::vector<RecordedLaunch>& launches() const { return state().launches; }
  const std::vector<RecordedTensorMap>& tensor_maps() const { return state().tensor_maps; }
  const std::vector<std::string>& calls() const { return state().calls; }
  size_t count(const std::string& call) const {
    size_t found = 0;
    for (const std::string& seen : calls()) found += seen == call ? 1 : 0;
    return found;
  }
  uintptr_t current_context() const { return reinterpret_cast<uintptr_t>(state().current); }
  int context_depth() const { return state().context_depth; }
  const std::vector<size_t>& scratch_bytes() const { return state().scratch_bytes; }

  const driver::cuda::CudaApi& api() const {
    static const driver::cuda::CudaApi table = {
        .init = [](unsigned) { return answer("init"); },
        .get_error_name = [](int, const char** text) { return *text = "CUDA_ERROR_FAKE", 0; },
        .get_error_string = [](int, const char** text) { return *text = "a fake failure", 0; },
        .device_get = [](int* device,
                         int ordinal) { return *device = ordinal, answer("device_get"); },
        .device_get_count = [](int* count) { return *count = 2, answer("device_get_count"); },
        .device_get_attribute =
            [](int* value, int, int) {
              return *value = state().max_shared, answer("device_get_attribute");
            },
        .primary_context_retain =
            [](driver::cuda::Context* context, int device) {
              *context =
                  reinterpret_cast<driver::cuda::Context>(static_cast<uintptr_t>(0x100 + device));
              return answer("primary_context_retain");
            },
        .context_get_current =
            [](driver::cuda::Context* context) {
              *context = state().current;
              return answer("context_get_current");
            },
        .context_set_current =
            [](driver::cuda::Context context) {
              state().current = context;
              return answer("context_set_current");
            },
        .context_push =
            [](driver::cuda::Context) { return ++state().context_depth, answer("context_push"); },
        .context_pop =
            [](driver::cuda::Context*) { return --state().context_depth, answer("context_pop"); },
        .module_load_data =
            [](driver::cuda::Module* module, const void*) {
              *module =
                  reinterpret_cast<driver::cuda::Module>(uintptr_t{0x2000} + state().calls.size());
              return answer("module_load_data");
            },
        .module_get_function =
            [](driver::cuda::Function* function, driver::cuda::Module module, const char*) {
              *function = reinterpret_cast<driver::cuda::Function>(
                  reinterpret_cast<uintptr_t>(module) + 0x1000);
              return answer("module_get_function");
            },
        .function_get_attribute =
            [](int* value, int, driver::cuda::Function) {
              return *value = 1024, answer("function_get_attribute");
            },
        .function_set_attribute =
            [](driver::cuda::Function, int attribute, int value) {
              return answer("function_set_attribute " + std::to_string(attribute) + " " +
                            std::to_string(value));
            },
        .function_set_cache_config = [](driver::cuda::Function,
                                        int) { return answer("function_set_cache_config"); },
        .stream_is_capturing =
            [](void*, int* status) {
              return *status = state().capturing ? 1 : 0, answer("stream_is_capturing");
            },
        .stream_get_capture_info =
            [](void*, int* status, uint64_t*, void**, const driver::cuda::GraphNode** nodes,
               size_t* count) {
              *status = state().capturing ? 1 : 0;
              *nodes = state().ends.data();
              *count = state().ends.size();
              return answer("stream_get_capture_info");
            },
        .thread_exchange_capture_mode =
            [](int* mode) {
              std::swap(*mode, state().capture_mode);
              return answer("thread_exchange_capture_mode");
            },
        .graph_get_nodes =
            [](void*, driver::cuda::GraphNode*, size_t* count) {
              *count = state().graph.size();
              return answer("graph_get_nodes");
            },
        .graph_instantiate = instantiate,
        .graph_exec_destroy =
            [](void* exec) {
              state().execs.erase(reinterpret_cast<uintptr_t>(exec));
              return answer("graph_exec_destroy");
            },
        .graph_launch = [](void*, void*) { return answer("graph_launch"); },
        .graph_kernel_node_get_params =
            [](driver::cuda::GraphNode node, driver::cuda::KernelNodeParams* params) {
              auto& kernel = *reinterpret_cast<FakeNode*>(node);
              kernel.pointers.clear();
              for (uint64_t& value : kernel.values) kernel.pointers.push_back(&value);
              *params = {};
              params->grid[0] = 7;
              params->params = kernel.pointers.data();
              return answer("graph_kernel_node_get_params");
            },
        .graph_kernel_node_set_params =
            [](driver::cuda::GraphNode node, const driver::cuda::KernelNodeParams* params) {
              const int result = answer("graph_kernel_node_set_params");
              if (result != 0) return result;
              FakeNode& kernel = *reinterpret_cast<FakeNode*>(node);
              // Where the values were shown before is not theirs any more.
              std::vector<uint64_t> values = given(*params, kernel.values.size());
              kernel.values.swap(values);
              std::fill(values.begin(), values.end(), 0xdead);
              return params->grid[0] == 7 ? 0 : 1;  // all else as the driver gave it
            },
        .graph_exec_kernel_node_set_params =
            [](void* exec, driver::cuda::GraphNode node,
               const driver::cuda::KernelNodeParams* params) {
              const int result = answer("graph_exec_kernel_node_set_params");
              if (result != 0) return result;
              const auto index = reinterpret_cast<FakeNode*>(node) - state().graph.data();
              auto& values = state().execs.at(reinterpret_cast<uintptr_t>(exec)).at(index);
              values = given(*params, values.size());
              return params->grid[0] == 7 ? 0 : 1;
            },
        .tensor_map_encode_tiled = record_tensor_map,
        .launch_kernel = record_launch,
    };
    return table;
  }

  // A library over this fake; scratch memory comes from the host.
  std::unique_ptr<driver::CudaLibrary> library() const {
    return std::make_unique<driver::CudaLibrary>(api(), [](size_t bytes) {
      state().scratch_bytes.push_back(bytes);
      return c10::GetCPUAllocator()->allocate(bytes);
    });
  }

 private:
  struct State {
    std::vector<std::string> calls;
    std::vector<RecordedLaunch> launches;
    std::vector<RecordedTensorMap> tensor_maps;
    std::vector<size_t> scratch_bytes;
    std::vector<FakeNode> graph;
    std::map<uintptr_t, std::vector<std::vector<uint64_t>>> execs;  // parameters by node
    uintptr_t last_exec = 0;
    int capture_mode = 0;
    bool capturing = false;
    std::vector<driver::cuda::GraphNode> ends;
    size_t num_values = 2;
    int context_depth = 0;
    driver::cuda::Context current = nullptr;
    int max_shared = 227 * 1024;
    std::string failing;
    driver::cuda::Result failure = 0;
  };

  static State& state() {
    static State instance;
    return instance;
  }

  static std::vector<uint64_t> given(const driver::cuda::KernelNodeParams& params, size_t count) {
    std::vector<uint64_t> values(count);
    for (size_t i = 0; i < count; ++i) std::memcpy(&values[i], params.params[i], sizeof(uint64_t));
    return values;
  }

  static driver::cuda::Result instantiate(void** exec, void*, uint64_t) {
    const driver::cuda::Result result = answer("graph_instantiate");
    if (result != 0) return result;
    if (state().capture_mode != driver::cuda::kStreamCaptureRelaxed) return 1;
    const uintptr_t number = ++state().last_exec;
    for (const FakeNode& node : state().graph) state().execs[number].push_back(node.values);
    return *exec = reinterpret_cast<void*>(number), 0;
  }

  static driver::cuda::Result answer(const std::string& call) {
    state().calls.push_back(call);
    if (!state().failing.empty() && call.starts_with(state().failing)) {
      state().failing.clear();
      return state().failure;
    }
    return 0;
  }

  // Leaves the map's number in its first bytes.
  static driver::cuda::Result record_tensor_map(void* map, int type, uint32_t rank, void* address,
                                                const uint64_t* sizes, const uint64_t* strides,
                                                const uint32_t* block, const uint32_t*, int,
                                                int swizzle, int, int fill) {
    const driver::cuda::Result result = answer("tensor_map_encode_tiled");
    if (result != 0) return result;
    state().tensor_maps.push_back({type,
                                   swizzle,
                                   fill,
                                   reinterpret_cast<uint64_t>(address),
                                   {sizes, sizes + rank},
                                   {strides, strides + rank - 1},
                                   {block, block + rank}});
    const uint64_t number = 0xde5c0000 + state().tensor_maps.size();
    std::memcpy(map, &number, sizeof(number));
    return reinterpret_cast<uintptr_t>(map) % 128 == 0 ? 0 : 1;
  }

  static driver::cuda::Result record_launch(const driver::cuda::LaunchConfig* config,
                                            driver::cuda::Function function, void** params,
                                            void**) {
    const driver::cuda::Result result = answer("launch_kernel");
    if (result != 0) return result;
    RecordedLaunch launch{
        *config, {config->attributes, config->attributes + config->num_attributes}, function, {}};
    for (size_t index = 0; index < state().num_values; ++index) {
      uint64_t value = 0;
      std::memcpy(&value, params[index], sizeof(value));
      launch.values.push_back(value);
    }
    state().launches.push_back(std::move(launch));
    return 0;
  }
};

static_assert(driver::CudaDriverLibrary<FakeCuda>);

}  // namespace trident::test
