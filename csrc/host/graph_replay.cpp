#include "host/graph_replay.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace trident::host {
namespace {

size_t dense_bytes(const c10::TensorImpl& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.itemsize();
}

uintptr_t address_of(const c10::TensorImpl& tensor) {
  return reinterpret_cast<uintptr_t>(data(wrap(const_cast<c10::TensorImpl*>(&tensor))));
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace

GraphReplay::GraphReplay(driver::CudaLibrary& library, c10::Allocator* allocator, void* graph,
                         std::shared_ptr<void> owner, c10::Stream stream,
                         const std::vector<CapturedInput>& inputs,
                         const std::vector<CapturedOutput>& outputs,
                         const std::vector<CapturedLaunch>& launches,
                         const std::vector<CapturedLaunch>& copies)
    : library_(library),
      allocator_(allocator),
      owner_(std::move(owner)),
      kernels_(library, graph),
      stream_(stream) {
  for (size_t index = 0; index < inputs.size(); ++index) {
    const CapturedInput& input = inputs[index];
    TORCH_CHECK(!input.own || !(input.written || input.pointed),
                "an input that is written, or that launches are pointed at, cannot be staged");
    if (input.written && input.pointed) written_pointed_.push_back(index);
    if (input.written && !input.pointed) written_.push_back(storage_of(*input.callers));
    inputs_.push_back({input.own,
                       address_of(*input.callers),
                       !input.own && !input.pointed,
                       input.launched,
                       input.own ? dense_bytes(*input.own) : 0,
                       input.alignment,
                       {}});
    (input.argument ? arguments_ : others_).push_back(index);
    if (!inputs_.back().fixed) movable_.push_back(index);
  }
  for (const CapturedOutput& output : outputs) {
    outputs_.push_back({c10::typeMetaToScalarType(output.own->dtype()),
                        output.own->sizes().vec(),
                        output.own->strides().vec(),
                        {}});
  }
  for (const CapturedLaunch& launch : launches) {
    for (const CapturedLaunch::Pointer& pointer : launch.pointers) {
      const bool of_input = pointer.source == TRIDENT_PARAM_INPUT;
      if (of_input ? inputs.at(pointer.index).pointed : !outputs.at(pointer.index).callers)
        note(launch, pointer,
             address_of(of_input ? *inputs[pointer.index].callers : *outputs[pointer.index].own));
    }
  }
  for (const CapturedLaunch& copy : copies) {
    for (const CapturedLaunch::Pointer& pointer : copy.pointers)
      note(copy, pointer, pointer.address);
  }
  kernels_.instantiate();
}

void GraphReplay::note(const CapturedLaunch& launch, const CapturedLaunch::Pointer& pointer,
                       uintptr_t start) {
  const size_t number =
      kernels_.find(launch.node, launch.num_params, pointer.param, pointer.address);
  std::vector<Pointer>& pointers = pointer.source == TRIDENT_PARAM_INPUT
                                       ? inputs_.at(pointer.index).pointers
                                       : outputs_.at(pointer.index).pointers;
  pointers.push_back({number, pointer.address - start});
}

GraphReplay::Range GraphReplay::storage_of(const c10::TensorImpl& tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.storage().data());
  return {begin, begin + tensor.storage().nbytes()};
}

bool GraphReplay::can_be_copied(const Input& input, const c10::TensorImpl& given,
                                const trident_tensor* inputs) const {
  const uintptr_t address = address_of(given);
  // A kernel may read more of the storage than the tensor, which is all that would be copied.
  if (input.launched && given.storage().nbytes() != input.bytes) return false;
  // A copy made beforehand would miss what the program writes through another input.
  return address % input.alignment == 0 && !meets_written(inputs, address, input.bytes);
}

bool GraphReplay::serves(const std::vector<size_t>& which, const trident_tensor* inputs,
                         std::set<size_t>& moved) const {
  bool all = true;
  for (const size_t index : which) {
    const Input& input = inputs_[index];
    const c10::TensorImpl& given = *unwrap(inputs[index]);
    if (input.own && !can_be_copied(input, given, inputs)) return false;
    if (!input.fixed || address_of(given) == input.address) [[likely]]
      continue;
    moved.insert(index);
    all = false;
  }
  return all;
}

bool GraphReplay::matches(const trident_tensor* inputs, uint64_t state_version,
                          std::set<size_t>& moved) {
  bool all = serves(arguments_, inputs, moved);
  if (state_version == 0 || state_version != state_version_) [[unlikely]] {
    const bool others = serves(others_, inputs, moved);
    state_version_ = others ? state_version : 0;
    all = all && others;
  }
  if (!all) return false;
  const c10::Stream current = current_stream(stream_.device());
  if (current != stream_) return false;
  library_.ensure_context(stream_.device().index());
  return !library_.is_capturing(current.native_handle());
}

bool GraphReplay::meets_written(const trident_tensor* inputs, uintptr_t from, size_t bytes) const {
  for (const Range& range : written_) {
    if (range.meets(from, bytes)) return true;
  }
  for (const size_t index : written_pointed_) {
    if (storage_of(*unwrap(inputs[index])).meets(from, bytes)) return true;
  }
  return false;
}

void GraphReplay::point(const std::vector<Pointer>& pointers, uintptr_t address) {
  for (const Pointer& pointer : pointers)
    kernels_.point(pointer.number, address + pointer.distance);
}

bool GraphReplay::give_outputs(std::vector<TensorRef>& outputs) {
  for (const Output& output : outputs_) {
    outputs.push_back(
        allocate(output.sizes, output.strides, output.dtype, stream_.device_type(), allocator_));
    point(output.pointers, address_of(*outputs.back()));
  }
  return kernels_.update();
}

bool GraphReplay::replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs) {
  const c10::DeviceGuard guard(stream_.device());
  const std::lock_guard lock(mutex_);
  for (const size_t index : movable_) {
    Input& input = inputs_[index];
    const uintptr_t address = address_of(*unwrap(inputs[index]));
    if (address == input.address) continue;
    point(input.pointers, address);
    input.address = address;
  }
  const size_t before = outputs.size();
  if (!give_outputs(outputs)) {
    outputs.resize(before);
    return false;
  }
  library_.check(library_.api().graph_launch(
                     kernels_.exec(), static_cast<driver::cuda::Stream>(stream_.native_handle())),
                 "cuGraphLaunch", "graph replay");
  replays_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace trident::host
