// What generated shims use to turn the C interface's arguments into ATen's, and results back.
//
// Tensors are borrowed: an at::Tensor is built over the caller's TensorImpl without touching its
// reference count, and gives the pointer up again at the end of the call.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "abi/abi.h"

namespace trident::aten {

using TensorPtr = c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

inline at::TensorImpl* impl(trident_tensor tensor) {
  return reinterpret_cast<at::TensorImpl*>(tensor);
}

// A tensor that does not own the reference it holds; NULL is the undefined tensor. Whoever makes one
// must let go of it with `forget`.
inline at::Tensor adopt(trident_tensor tensor) {
  return tensor == nullptr ? at::Tensor() : at::Tensor(TensorPtr::reclaim(impl(tensor)));
}

inline void forget(at::Tensor& tensor) noexcept { tensor.unsafeReleaseIntrusivePtr().release(); }

// A tensor with a reference of its own.
inline at::Tensor retain(trident_tensor tensor) {
  return tensor == nullptr ? at::Tensor() : at::Tensor(TensorPtr::reclaim_copy(impl(tensor)));
}

// Gives the caller the reference that `tensor` holds; NULL for an undefined tensor.
inline trident_tensor own(at::Tensor&& tensor) {
  if (!tensor.defined()) return nullptr;
  return reinterpret_cast<trident_tensor>(tensor.unsafeReleaseIntrusivePtr().release());
}

// A borrowed `Tensor` argument.
class Borrowed {
 public:
  explicit Borrowed(trident_tensor tensor) : tensor_(adopt(tensor)) {}
  ~Borrowed() { forget(tensor_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  at::Tensor& operator*() { return tensor_; }

 private:
  at::Tensor tensor_;
};

// A borrowed `Tensor?` argument; NULL is None.
class BorrowedOptional {
 public:
  explicit BorrowedOptional(trident_tensor tensor) {
    if (tensor != nullptr) tensor_.emplace(adopt(tensor));
  }
  ~BorrowedOptional() {
    if (tensor_) forget(*tensor_);
  }
  BorrowedOptional(const BorrowedOptional&) = delete;
  BorrowedOptional& operator=(const BorrowedOptional&) = delete;

  const std::optional<at::Tensor>& operator*() const { return tensor_; }

 private:
  std::optional<at::Tensor> tensor_;
};

// A borrowed `Tensor[]` argument.
class BorrowedList {
 public:
  BorrowedList(const trident_tensor* tensors, int64_t count) {
    tensors_.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) tensors_.push_back(adopt(tensors[i]));
  }
  ~BorrowedList() {
    for (at::Tensor& tensor : tensors_) forget(tensor);
  }
  BorrowedList(const BorrowedList&) = delete;
  BorrowedList& operator=(const BorrowedList&) = delete;

  at::TensorList operator*() const { return {tensors_.data(), tensors_.size()}; }

 private:
  c10::SmallVector<at::Tensor, 8> tensors_;
};

namespace arg {

inline at::Scalar scalar(const trident_scalar& value) {
  switch (value.kind) {
    case TRIDENT_SCALAR_BOOL:
      return at::Scalar(value.value.i != 0);
    case TRIDENT_SCALAR_INT:
      return at::Scalar(value.value.i);
    case TRIDENT_SCALAR_FLOAT:
      return at::Scalar(value.value.f);
  }
  TORCH_CHECK(false, "a Scalar argument has the unknown kind ", value.kind);
}

inline std::optional<at::Scalar> optional_scalar(const trident_scalar* value) {
  if (value == nullptr) return std::nullopt;
  return scalar(*value);
}

// int?, SymInt?, bool?, float? and the optional enums.
template <typename Value, typename Source>
inline std::optional<Value> optional(const Source* value) {
  if (value == nullptr) return std::nullopt;
  return static_cast<Value>(*value);
}

inline std::optional<c10::string_view> optional_string(const char* value) {
  if (value == nullptr) return std::nullopt;
  return c10::string_view(value);
}

inline std::optional<at::Device> optional_device(const trident_device* value) {
  if (value == nullptr) return std::nullopt;
  return at::Device(static_cast<at::DeviceType>(value->type),
                    static_cast<at::DeviceIndex>(value->index));
}

inline at::Device device(const trident_device* value) {
  TORCH_CHECK(value != nullptr, "a Device argument is missing");
  return *optional_device(value);
}

inline at::IntArrayRef ints(const int64_t* values, int64_t count) {
  return {values, static_cast<size_t>(count)};
}

inline at::OptionalIntArrayRef optional_ints(const int64_t* values, int64_t count) {
  if (values == nullptr) return std::nullopt;
  return ints(values, count);
}

inline c10::SymIntArrayRef symints(const int64_t* values, int64_t count) {
  return c10::fromIntArrayRefSlow(ints(values, count));
}

inline at::OptionalSymIntArrayRef optional_symints(const int64_t* values, int64_t count) {
  if (values == nullptr) return std::nullopt;
  return symints(values, count);
}

inline at::ArrayRef<double> floats(const double* values, int64_t count) {
  return {values, static_cast<size_t>(count)};
}

inline std::optional<at::ArrayRef<double>> optional_floats(const double* values, int64_t count) {
  if (values == nullptr) return std::nullopt;
  return floats(values, count);
}

template <size_t N>
inline std::array<bool, N> bools(const int64_t* values, int64_t count) {
  TORCH_CHECK(count == static_cast<int64_t>(N), "expected ", N, " bools, got ", count);
  std::array<bool, N> result;
  for (size_t i = 0; i < N; ++i) result[i] = values[i] != 0;
  return result;
}

// `Tensor?[]` has no form in ATen that could borrow.
inline c10::List<std::optional<at::Tensor>> optional_tensors(const trident_tensor* tensors,
                                                             int64_t count) {
  c10::List<std::optional<at::Tensor>> result;
  result.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    result.push_back(tensors[i] == nullptr ? std::nullopt
                                           : std::optional<at::Tensor>(retain(tensors[i])));
  }
  return result;
}

}  // namespace arg

// Results go where the caller asked for them; a NULL destination drops the result.
inline void give(at::Tensor&& tensor, trident_tensor* to) {
  if (to != nullptr) *to = own(std::move(tensor));
}

inline void give(c10::SymInt value, int64_t* to) {
  if (to != nullptr) *to = value.guard_int(__FILE__, __LINE__);
}

inline void give(std::vector<at::Tensor>&& tensors, trident_tensor* to, int64_t count) {
  TORCH_CHECK(static_cast<int64_t>(tensors.size()) == count, "the operator made ", tensors.size(),
              " tensors where the program expects ", count);
  for (int64_t i = 0; i < count; ++i) give(std::move(tensors[static_cast<size_t>(i)]), to + i);
}

template <typename... Results, typename... Destinations>
inline void give(std::tuple<Results...>&& results, Destinations... to) {
  static_assert(sizeof...(Results) == sizeof...(Destinations));
  std::apply([&](Results&... result) { (give(std::move(result), to), ...); }, results);
}

}  // namespace trident::aten
