// Making tensors without going through the dispatcher where nobody can tell the difference.
#include "host/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include "aten/arguments.h"

namespace trident::host {
namespace {

c10::ScalarType dtype_of(const trident_layout& layout) {
  return static_cast<c10::ScalarType>(layout.dtype);
}

c10::DispatchKeySet dense_keys(c10::DeviceType device) {
  return c10::DispatchKeySet(device == c10::DeviceType::CUDA ? c10::DispatchKey::CUDA
                                                             : c10::DispatchKey::CPU);
}

}  // namespace

int64_t extent(const trident_layout& layout) {
  int64_t last = 0;
  for (int32_t axis = 0; axis < layout.ndim; ++axis) {
    if (layout.sizes[axis] == 0) return 0;
    last += (layout.sizes[axis] - 1) * layout.strides[axis];
  }
  return last + 1;
}

TensorRef allocate(const trident_layout& layout, c10::DeviceType device,
                   c10::Allocator* allocator) {
  return allocate(sizes(layout), strides(layout), dtype_of(layout), device, allocator);
}

TensorRef allocate(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                   c10::DeviceType device, c10::Allocator* allocator) {
  return at::detail::empty_strided_generic(sizes, strides, allocator, dense_keys(device), dtype)
      .getIntrusivePtr();
}

TensorRef planned_tensor(const trident_layout& layout, const c10::Storage& storage) {
  // A frame serves calls in and out of inference mode; a normal tensor may be written to in both,
  // an inference tensor only in the first.
  const c10::InferenceMode normal(false);
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(dtype_of(layout));
  auto tensor = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage),
                                                     dense_keys(storage.device_type()), dtype);
  tensor->set_sizes_and_strides(sizes(layout), strides(layout),
                                layout.offset / static_cast<int64_t>(dtype.itemsize()));
  return tensor;
}

TensorRef number_tensor(const trident_scalar& number) {
  const c10::InferenceMode normal(false);
  at::Tensor tensor = c10::scalar_to_tensor(aten::arg::scalar(number));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor.getIntrusivePtr();
}

TensorRef view(c10::TensorImpl* base, const trident_layout& layout, bool escapes) {
  TORCH_CHECK(base != nullptr, "a view of an absent tensor");
  TORCH_CHECK(base->dtype() == c10::scalarTypeToTypeMeta(dtype_of(layout)), "a view of dtype ",
              dtype_of(layout), " over a tensor of dtype ", base->dtype());
  const int64_t offset = base->storage_offset() + layout.offset;
  if (escapes) {
    const at::Tensor tensor(TensorRef::reclaim_copy(base));
    return at::as_strided(tensor, sizes(layout), strides(layout), offset).getIntrusivePtr();
  }
  const int64_t elements = extent(layout);
  TORCH_CHECK(offset >= 0 &&
                  (elements == 0 || (offset + elements) * static_cast<int64_t>(base->itemsize()) <=
                                        static_cast<int64_t>(base->storage().nbytes())),
              "a view of sizes ", sizes(layout), ", strides ", strides(layout),
              " and storage offset ", offset, " is out of bounds for a storage of ",
              base->storage().nbytes(), " bytes");
  auto tensor = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base->storage()), base->key_set(), base->dtype());
  tensor->set_sizes_and_strides(sizes(layout), strides(layout), offset);
  if (!base->is_inference()) tensor->set_version_counter(base->version_counter());
  return tensor;
}

namespace {

constexpr uintptr_t kAlignment = 16;  // what kernels are compiled for

// Where it matters: not along axes of one element, nor in tensors of none.
bool same_strides(const c10::TensorImpl& tensor, const trident_layout& layout) {
  if (tensor.numel() == 0) return true;
  for (int32_t axis = 0; axis < layout.ndim; ++axis) {
    if (layout.sizes[axis] != 1 && tensor.strides()[axis] != layout.strides[axis]) return false;
  }
  return true;
}

bool same_alignment(const c10::TensorImpl& tensor, const trident_layout& layout) {
  if (tensor.numel() == 0) return true;
  const auto distance = static_cast<uintptr_t>(layout.offset) * tensor.itemsize();
  return (reinterpret_cast<uintptr_t>(tensor.data()) - distance) % kAlignment == 0;
}

}  // namespace

void expect(const c10::TensorImpl* tensor, const trident_layout& layout, c10::Device device,
            const char* op) {
  TORCH_CHECK(tensor != nullptr, op, " returned no tensor where its fake implementation gives one");
  const auto dtype = static_cast<c10::ScalarType>(layout.dtype);
  const bool same = c10::typeMetaToScalarType(tensor->dtype()) == dtype &&
                    tensor->device() == device && tensor->sizes() == sizes(layout) &&
                    same_strides(*tensor, layout);
  TORCH_CHECK(same, op, " returned a tensor of ", tensor->dtype(), " on ", tensor->device(),
              " with sizes ", tensor->sizes(), " and strides ", tensor->strides(),
              ", its fake implementation gives ", dtype, " on ", device, " with sizes ",
              sizes(layout), " and strides ", strides(layout),
              "; correct it with torch.library.register_fake");
  TORCH_CHECK(same_alignment(*tensor, layout), op,
              " returned a tensor that does not start where its fake implementation lets it start: "
              "its address has another remainder modulo ",
              kAlignment);
}

}  // namespace trident::host
