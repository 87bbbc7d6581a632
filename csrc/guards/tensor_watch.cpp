#include "guards/tensor_watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>

#include "guards/cpython_layout.h"
#include "guards/tensor_facts.h"

namespace trident::guards {
namespace {

// How many tensors ahead memory is asked for: a model's parameters lie all over the heap.
constexpr size_t kAhead = 6;
constexpr size_t kCacheLine = 64;

const c10::TensorImpl& impl_of(PyObject* tensor) {
  return *THPVariable_Unpack(tensor).unsafeGetTensorImpl();
}

const void* begin_of(const c10::StorageImpl* storage) {
  return storage ? storage->data() : nullptr;
}

}  // namespace

TensorWatch::Seen::Seen(PyObject* object, uint32_t words)
    : object(object), type(Py_TYPE(object)), impl(&impl_of(object)), words(words) {
  storage = TensorMembers::storage(*impl).unsafeGetStorageImpl();
  begin = begin_of(storage);
  attributes = tensor_attributes(object);
  keys = impl->key_set().raw_repr();
  requires_grad = guards::requires_grad(*impl);
  autograd = TensorMembers::autograd(*impl);
  const std::string_view facts = TensorMembers::facts(*impl);
  comparable = facts.size() <= kMaxBytes && impl->dim() <= TensorMembers::kMaxRank;
  std::memcpy(bytes, facts.data(), std::min(facts.size(), kMaxBytes));
}

bool TensorWatch::Seen::same() const {
  const c10::TensorImpl& tensor = impl_of(object);
  if (Py_TYPE(object) != type || &tensor != impl || !comparable) return false;
  const std::string_view facts = TensorMembers::facts(tensor);
  const c10::StorageImpl* now = TensorMembers::storage(tensor).unsafeGetStorageImpl();
  return std::memcmp(facts.data(), bytes, facts.size()) == 0 && now == storage &&
         begin_of(now) == begin && guards::requires_grad(tensor) == requires_grad &&
         tensor_attributes(object) == attributes;
}

bool TensorWatch::Seen::matches(const uint64_t* facts) const {
  const c10::TensorImpl& tensor = impl_of(object);
  return Py_TYPE(object) == type && tensor.key_set().raw_repr() == keys &&
         tensor_matches(tensor, facts) && tensor_attributes(object) == attributes;
}

void TensorWatch::record(const Walk& walk) {
  seen_.clear();
  seen_.reserve(walk.tensors.size());
  for (size_t i = 0; i < walk.tensors.size(); ++i) {
    seen_.emplace_back(walk.tensors[i], walk.tensor_words[i]);
  }
}

bool TensorWatch::unchanged(const std::vector<uint64_t>& words) {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (i + kAhead < seen_.size()) {
      const Seen& later = seen_[i + kAhead];
      const auto* impl = reinterpret_cast<const char*>(later.impl);
      __builtin_prefetch(later.object);
      __builtin_prefetch(later.storage);
      __builtin_prefetch(later.autograd);
      __builtin_prefetch(impl);
      __builtin_prefetch(impl + kCacheLine);
      __builtin_prefetch(impl + 2 * kCacheLine);
    }
    Seen& seen = seen_[i];
    if (seen.same()) [[likely]]
      continue;
    if (!seen.matches(words.data() + seen.words)) return false;
    seen = Seen(seen.object, seen.words);
  }
  return true;
}

}  // namespace trident::guards
