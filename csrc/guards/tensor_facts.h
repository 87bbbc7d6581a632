// The facts of one tensor, as words.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace trident::guards {

// Protected members of TensorImpl, for looks that are made at every weight in every call.
struct TensorMembers : c10::TensorImpl {
  static const c10::Storage& storage(const c10::TensorImpl& tensor) {
    return tensor.*(&TensorMembers::storage_);
  }
  // As TensorImpl::autograd_meta(), without a call: the member behind the storage, which is private.
  static const c10::AutogradMetaInterface* autograd(const c10::TensorImpl& tensor) {
    const auto* behind = reinterpret_cast<const char*>(&storage(tensor) + 1);
    const c10::AutogradMetaInterface* meta;
    std::memcpy(&meta, behind, sizeof(meta));
    return meta;
  }
  // The bytes of sizes, strides and offset, dtype, device, flags and key set, which TensorImpl keeps
  // side by side. More than five sizes lie elsewhere.
  static std::string_view facts(const c10::TensorImpl& tensor) {
    const auto* begin =
        reinterpret_cast<const char*>(&(tensor.*(&TensorMembers::sizes_and_strides_)));
    const auto* end = reinterpret_cast<const char*>(&(tensor.*(&TensorMembers::key_set_)) + 1);
    return {begin, static_cast<size_t>(end - begin)};
  }
  static constexpr int64_t kMaxRank = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;
};

inline bool requires_grad(const c10::TensorImpl& tensor) {
  // torch registers one factory of these, for AutogradMeta and what derives from it.
  const auto* meta =
      static_cast<const torch::autograd::AutogradMeta*>(TensorMembers::autograd(tensor));
  return meta && (meta->requires_grad_ || meta->requires_grad());
}

// Why a tensor cannot be described, or nullptr: sparse, quantized, lazy conjugate, other devices.
const char* tensor_unsupported(const c10::TensorImpl& tensor);

// One header word (dtype, device, rank, requires_grad, inference flag).
uint64_t tensor_header(const c10::TensorImpl& tensor);

// The address of the first element modulo 16; 0 without elements.
uint64_t tensor_alignment(const c10::TensorImpl& tensor);

// Appends header, sizes, strides and alignment.
void append_tensor(const c10::TensorImpl& tensor, std::vector<uint64_t>& words);

// Whether the tensor still has exactly the facts that `append_tensor` wrote at `words`.
bool tensor_matches(const c10::TensorImpl& tensor, const uint64_t* words);

}  // namespace trident::guards
