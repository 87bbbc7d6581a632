// Tensors as they cross the C interface: a `trident_tensor` is an at::TensorImpl.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "abi/abi.h"

namespace trident::host {

using TensorRef = c10::intrusive_ptr<c10::TensorImpl>;

inline c10::TensorImpl* unwrap(trident_tensor tensor) {
  return reinterpret_cast<c10::TensorImpl*>(tensor);
}
inline trident_tensor wrap(c10::TensorImpl* tensor) {
  return reinterpret_cast<trident_tensor>(tensor);
}

// Hands the reference over to the receiver of the `trident_tensor`.
inline trident_tensor give(TensorRef tensor) { return wrap(tensor.release()); }
// Takes an owned `trident_tensor` over.
inline TensorRef take(trident_tensor tensor) { return TensorRef::reclaim(unwrap(tensor)); }

inline void release(trident_tensor& slot) noexcept {
  if (slot != nullptr) take(std::exchange(slot, nullptr));
}

// Address of the first element; NULL for a tensor without elements, as Tensor.data_ptr() gives.
inline void* data(trident_tensor tensor) {
  return tensor == nullptr ? nullptr : unwrap(tensor)->mutable_data();
}

inline c10::IntArrayRef sizes(const trident_layout& layout) {
  return {layout.sizes, static_cast<size_t>(layout.ndim)};
}
inline c10::IntArrayRef strides(const trident_layout& layout) {
  return {layout.strides, static_cast<size_t>(layout.ndim)};
}

// Elements from the first to one past the last of a layout; 0 where there are none.
int64_t extent(const trident_layout& layout);

// A fresh tensor of this layout from `allocator`, on the current device and stream.
TensorRef allocate(const trident_layout& layout, c10::DeviceType device, c10::Allocator* allocator);

// The same for a geometry that no layout describes.
TensorRef allocate(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                   c10::DeviceType device, c10::Allocator* allocator);

// A tensor over `storage`, whose memory may still come. `offset` of the layout is in bytes.
TensorRef planned_tensor(const trident_layout& layout, const c10::Storage& storage);

// The tensor that stands for a Python number where an operator takes a tensor. ValueError for a kind
// that no number has.
TensorRef number_tensor(const trident_scalar& number);

// A tensor that shares `base`'s storage and version counter. `escapes`: with the view metadata that
// eager gives; the call must then run below autograd, not below ADInplaceOrView.
TensorRef view(c10::TensorImpl* base, const trident_layout& layout, bool escapes);

// A RuntimeError unless `tensor`, a result of operator `op`, is as `layout` and `device` say.
void expect(const c10::TensorImpl* tensor, const trident_layout& layout, c10::Device device,
            const char* op);

}  // namespace trident::host
