#include "host/graph_replay.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace trident::host {
namespace {

size_t dense_bytes(const c10::TensorImpl& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.itemsize();
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace

GraphReplay::GraphReplay(driver::CudaLibrary& library, c10::Allocator* allocator, void* exec,
                         std::shared_ptr<void> owner, c10::Stream stream,
                         std::vector<TensorRef> inputs, const std::vector<bool>& staged,
                         const std::vector<bool>& written, std::vector<TensorRef> outputs)
    : library_(library),
      allocator_(allocator),
      exec_(exec),
      owner_(std::move(owner)),
      stream_(stream) {
  TORCH_CHECK(inputs.size() == staged.size() && inputs.size() == written.size(),
              "every input is staged or not, written or not");
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(!staged[i] || !written[i], "a written input cannot be staged");
    if (written[i]) {
      const c10::Storage& storage = inputs[i]->storage();
      const auto begin = reinterpret_cast<uintptr_t>(storage.data());
      written_.push_back({begin, begin + storage.nbytes()});
    }
    void* address = data(wrap(inputs[i].get()));
    if (staged[i]) {
      const size_t bytes = dense_bytes(*inputs[i]);
      inputs_.push_back({std::move(inputs[i]), address, bytes});
    } else {
      inputs_.push_back({nullptr, address, 0});
    }
  }
  for (const TensorRef& tensor : outputs) {
    outputs_.push_back({data(wrap(tensor.get())), dense_bytes(*tensor),
                        c10::typeMetaToScalarType(tensor->dtype()), tensor->sizes().vec(),
                        tensor->strides().vec()});
  }
}

bool GraphReplay::matches(const trident_tensor* inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    void* address = data(inputs[i]);
    if (!inputs_[i].own) {
      if (address != inputs_[i].address) return false;
      continue;
    }
    // A copy made beforehand would miss what the program writes through another input.
    const auto begin = reinterpret_cast<uintptr_t>(address);
    for (const Range& range : written_) {
      if (begin < range.end && range.begin < begin + inputs_[i].bytes) return false;
    }
  }
  const c10::Stream current = current_stream(stream_.device());
  return current == stream_ && !library_.is_capturing(current.native_handle());
}

void GraphReplay::copy(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  library_.check(library_.api().memcpy_device_to_device(reinterpret_cast<uintptr_t>(to),
                                                        reinterpret_cast<uintptr_t>(from), bytes,
                                                        static_cast<driver::cuda::Stream>(stream)),
                 "cuMemcpyDtoDAsync", "graph replay");
}

void GraphReplay::replay(const trident_tensor* inputs, std::vector<TensorRef>& outputs) {
  const c10::DeviceGuard guard(stream_.device());
  library_.ensure_context(stream_.device().index());
  void* stream = stream_.native_handle();
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].own) copy(inputs_[i].address, data(inputs[i]), inputs_[i].bytes, stream);
  }
  library_.check(library_.api().graph_launch(exec_, static_cast<driver::cuda::Stream>(stream)),
                 "cuGraphLaunch", "graph replay");
  for (const Output& output : outputs_) {
    TensorRef fresh =
        allocate(output.sizes, output.strides, output.dtype, stream_.device_type(), allocator_);
    copy(data(wrap(fresh.get())), output.address, output.bytes, stream);
    outputs.push_back(std::move(fresh));
  }
  replays_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace trident::host
