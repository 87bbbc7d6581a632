#include "guards/tensor_facts.h"

#include <c10/core/DispatchKeySet.h>

#include "guards/words.h"

namespace trident::guards {
namespace {

constexpr size_t kUsualRank = 6;

// What a dense tensor's key set may hold; anything else changes what operators do with it.
c10::DispatchKeySet foreign_keys() {
  using c10::DispatchKey;
  c10::DispatchKeySet keys({DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                            DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor,
                            DispatchKey::Functionalize, DispatchKey::FuncTorchBatched,
                            DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched});
#if __has_include(<ATen/core/NamedTensor.h>)  // named tensors, gone from newer versions of torch
  keys = keys.add(DispatchKey::Named);
#endif
  return keys;
}

bool is_inference(const c10::TensorImpl& tensor) {
  return const_cast<c10::TensorImpl&>(tensor).is_inference();  // reads only, but is not const
}

// Of the first element; 0 where there is none.
uint64_t address_of(const c10::TensorImpl& tensor) {
  const c10::Storage& storage = TensorMembers::storage(tensor);
  if (!storage || tensor.numel() == 0) return 0;
  const auto begin = reinterpret_cast<uint64_t>(storage.data());
  return begin ? begin + static_cast<uint64_t>(tensor.storage_offset()) * tensor.dtype().itemsize()
               : 0;
}

}  // namespace

const char* tensor_unsupported(const c10::TensorImpl& tensor) {
  static const c10::DispatchKeySet foreign = foreign_keys();
  if (tensor.key_set().has_any(foreign)) {
    return "a tensor with lazy or wrapped semantics (tensor subclass, conjugate or negative view, "
           "torch.func or functionalization wrapper)";
  }
  if (tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested()) {
    return "a tensor that is not dense (sparse, quantized or nested)";
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) return "a tensor on a device other than CPU and CUDA";
  return nullptr;
}

uint64_t tensor_header(const c10::TensorImpl& tensor) {
  const c10::Device device = tensor.device();
  return tagged(Tag::kTensor, static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype())) |
                                  static_cast<uint64_t>(static_cast<uint8_t>(device.type())) << 8 |
                                  static_cast<uint64_t>(static_cast<uint8_t>(device.index()))
                                      << 16 |
                                  static_cast<uint64_t>(tensor.dim() & 0xff) << 24 |
                                  static_cast<uint64_t>(requires_grad(tensor)) << 36 |
                                  static_cast<uint64_t>(is_inference(tensor)) << 37);
}

uint64_t tensor_alignment(const c10::TensorImpl& tensor) { return address_of(tensor) & 15; }

void append_tensor(const c10::TensorImpl& tensor, std::vector<uint64_t>& words) {
  const c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  if (sizes.size() <= kUsualRank) [[likely]] {
    uint64_t facts[2 + 2 * kUsualRank];
    uint64_t* next = facts;
    *next++ = tensor_header(tensor);
    for (const int64_t size : sizes) *next++ = static_cast<uint64_t>(size);
    for (const int64_t stride : strides) *next++ = static_cast<uint64_t>(stride);
    *next++ = tensor_alignment(tensor);
    words.insert(words.end(), facts, next);
    return;
  }
  words.push_back(tensor_header(tensor));
  words.insert(words.end(), sizes.begin(), sizes.end());
  words.insert(words.end(), strides.begin(), strides.end());
  words.push_back(tensor_alignment(tensor));
}

bool tensor_matches(const c10::TensorImpl& tensor, const uint64_t* words) {
  if (*words++ != tensor_header(tensor)) return false;
  for (const int64_t size : tensor.sizes()) {
    if (*words++ != static_cast<uint64_t>(size)) return false;
  }
  for (const int64_t stride : tensor.strides()) {
    if (*words++ != static_cast<uint64_t>(stride)) return false;
  }
  return *words == tensor_alignment(tensor);
}

}  // namespace trident::guards
