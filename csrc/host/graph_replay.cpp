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
                         void* exec, std::shared_ptr<void> owner, c10::Stream stream,
                         const std::vector<Pair>& inputs, const std::vector<bool>& written,
                         const std::vector<bool>& launched, const std::vector<Pair>& outputs)
    : library_(library),
      allocator_(allocator),
      exec_(exec),
      copies_(library, graph, exec),
      owner_(std::move(owner)),
      stream_(stream) {
  TORCH_CHECK(inputs.size() == written.size() && inputs.size() == launched.size(),
              "every input is written or not, and a launch takes it or not");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Pair& input = inputs[i];
    TORCH_CHECK(!input.own || !written[i], "a written input cannot be staged");
    if (written[i]) {
      const c10::Storage& storage = input.callers->storage();
      const auto begin = reinterpret_cast<uintptr_t>(storage.data());
      written_.push_back({begin, begin + storage.nbytes()});
    }
    if (input.own) {
      const size_t copy = find_copy(*input.callers, *input.own);
      inputs_.push_back({input.own, nullptr, dense_bytes(*input.own), copy, launched[i]});
    } else {
      inputs_.push_back({nullptr, data(wrap(input.callers.get())), 0, kNoCopy, launched[i]});
    }
  }
  for (const Pair& output : outputs) {
    outputs_.push_back({find_copy(*output.own, *output.callers),
                        c10::typeMetaToScalarType(output.own->dtype()), output.own->sizes().vec(),
                        output.own->strides().vec()});
  }
}

size_t GraphReplay::find_copy(const c10::TensorImpl& from, const c10::TensorImpl& to) {
  const size_t bytes = dense_bytes(from);
  return bytes == 0 ? kNoCopy : copies_.find(address_of(from), address_of(to), bytes);
}

bool GraphReplay::matches(const trident_tensor* inputs, std::set<size_t>& moved) {
  bool all_there = true;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    void* address = data(inputs[i]);
    if (!inputs_[i].own) {
      if (address == inputs_[i].address) [[likely]]
        continue;
      moved.insert(i);
      all_there = false;
      continue;
    }
    // A kernel may read more of the storage than the tensor, which is all that would be copied.
    if (inputs_[i].launched && unwrap(inputs[i])->storage().nbytes() != inputs_[i].bytes)
      return false;
    // A copy made beforehand would miss what the program writes through another input.
    const auto begin = reinterpret_cast<uintptr_t>(address);
    for (const Range& range : written_) {
      if (begin < range.end && range.begin < begin + inputs_[i].bytes) return false;
    }
  }
  if (!all_there) return false;
  const c10::Stream current = current_stream(stream_.device());
  return current == stream_ && !library_.is_capturing(current.native_handle());
}

bool GraphReplay::replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs) {
  const c10::DeviceGuard guard(stream_.device());
  library_.ensure_context(stream_.device().index());
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t copy = inputs_[i].copy;
    if (copy != kNoCopy && !copies_.move_source(copy, address_of(*unwrap(inputs[i])))) return false;
  }
  const size_t before = outputs.size();
  for (const Output& output : outputs_) {
    outputs.push_back(
        allocate(output.sizes, output.strides, output.dtype, stream_.device_type(), allocator_));
    if (output.copy != kNoCopy && !copies_.move_target(output.copy, address_of(*outputs.back()))) {
      outputs.resize(before);
      return false;
    }
  }
  library_.check(library_.api().graph_launch(
                     exec_, static_cast<driver::cuda::Stream>(stream_.native_handle())),
                 "cuGraphLaunch", "graph replay");
  replays_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace trident::host
