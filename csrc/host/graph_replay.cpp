#include "host/graph_replay.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace trident::host {
namespace {

size_t dense_bytes(const c10::TensorImpl& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.itemsize();
}

const void* storage_begin(const c10::TensorImpl& tensor) { return tensor.storage().data(); }

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace

GraphReplay::GraphReplay(driver::CudaLibrary& library, void* exec, c10::Stream stream,
                         std::vector<TensorRef> inputs, const std::vector<bool>& staged,
                         const std::vector<bool>& written, std::vector<TensorRef> outputs)
    : library_(library), exec_(exec), stream_(stream) {
  TORCH_CHECK(inputs.size() == staged.size() && inputs.size() == written.size(),
              "every input is staged or not, written or not");
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(!staged[i] || !written[i], "a written input cannot be staged");
    if (written[i]) written_.push_back(storage_begin(*inputs[i]));
    void* address = data(wrap(inputs[i].get()));
    const size_t bytes = staged[i] ? dense_bytes(*inputs[i]) : 0;
    inputs_.push_back({std::move(inputs[i]), address, bytes});
  }
  for (TensorRef& tensor : outputs) {
    void* address = data(wrap(tensor.get()));
    const size_t bytes = dense_bytes(*tensor);
    outputs_.push_back({std::move(tensor), address, bytes});
  }
}

bool GraphReplay::matches(const trident_tensor* inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].bytes == 0) {
      if (data(inputs[i]) != inputs_[i].address) return false;
      continue;
    }
    // A copy made beforehand would miss what the program writes through another input.
    const void* begin = storage_begin(*unwrap(inputs[i]));
    if (std::find(written_.begin(), written_.end(), begin) != written_.end()) return false;
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
    if (inputs_[i].bytes != 0) copy(inputs_[i].address, data(inputs[i]), inputs_[i].bytes, stream);
  }
  library_.check(library_.api().graph_launch(exec_, static_cast<driver::cuda::Stream>(stream)),
                 "cuGraphLaunch", "graph replay");
  for (const Output& output : outputs_) {
    at::Tensor fresh =
        at::empty_strided(output.tensor->sizes(), output.tensor->strides(),
                          at::TensorOptions(output.tensor->dtype()).device(stream_.device()));
    copy(fresh.mutable_data_ptr(), output.address, output.bytes, stream);
    outputs.push_back(fresh.getIntrusivePtr());
  }
  replays_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace trident::host
