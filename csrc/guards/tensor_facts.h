// The facts of one tensor, as words.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace trident::guards {

// Protected members of TensorImpl, for looks that are made at every weight in every call.
struct TensorMembers : c10::TensorImpl {
  static const c10::Storage& storage(const c10::TensorImpl& tensor) {
    return tensor.*(&TensorMembers::storage_);
  }
  // As TensorImpl::autograd_meta(), without a call: the member behind the storage, which is private.
  // torch registers one factory of these, for AutogradMeta and what derives from it.
  static const torch::autograd::AutogradMeta* autograd(const c10::TensorImpl& tensor) {
    const auto* behind = reinterpret_cast<const char*>(&storage(tensor) + 1);
    const c10::AutogradMetaInterface* meta;
    std::memcpy(&meta, behind, sizeof(meta));
    return static_cast<const torch::autograd::AutogradMeta*>(meta);
  }
  // The words of sizes, strides and offset, dtype, device, flags and key set, which TensorImpl keeps
  // side by side. More than five sizes lie elsewhere.
  static const char* facts(const c10::TensorImpl& tensor) {
    return reinterpret_cast<const char*>(&tensor) + facts_begin();
  }
  static constexpr int64_t kMaxRank = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;

// GCC and Clang lay out every class such that offsets of members are constants.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  static constexpr size_t storage_begin() { return offsetof(TensorMembers, storage_); }
  static constexpr size_t facts_begin() { return offsetof(TensorMembers, sizes_and_strides_); }
  static constexpr size_t numel_begin() { return offsetof(TensorMembers, numel_); }
  static constexpr size_t facts_end() {
    return offsetof(TensorMembers, key_set_) + sizeof(key_set_);
  }
#pragma GCC diagnostic pop
};

inline constexpr size_t kTensorFactBytes =
    TensorMembers::facts_end() - TensorMembers::facts_begin();

inline bool requires_grad(const c10::TensorImpl& tensor) {
  // As AutogradMeta::requires_grad(), without a call; DifferentiableViewMeta's asks the base, too.
  const torch::autograd::AutogradMeta* const meta = TensorMembers::autograd(tensor);
  if (!meta) return false;
  if (meta->requires_grad_) return true;
  return meta->is_view_ ? meta->requires_grad() : meta->grad_fn_ != nullptr;
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
