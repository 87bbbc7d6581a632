#include "guards/tensor_watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <cstring>
#include <unordered_map>

#include "guards/cpython_layout.h"
#include "scm/hash.h"

namespace trident::guards {
namespace {

// How many tensors ahead memory is asked for.
constexpr std::ptrdiff_t kAhead = 6;

// In place of an image's last word: no tensor is the same.
constexpr uint64_t kIncomparable = 2;

const c10::TensorImpl& impl_of(PyObject* tensor) {
  return *THPVariable_Unpack(tensor).unsafeGetTensorImpl();
}

// Not by StorageImpl::data(), which reads another cache line to see whether one may.
const c10::DataPtr* data_of(const c10::TensorImpl& tensor) {
  c10::StorageImpl* const storage = TensorMembers::storage(tensor).unsafeGetStorageImpl();
  return storage ? &storage->_mutable_data_ptr_no_checks() : nullptr;
}

const void* begin_of(const c10::DataPtr* data) { return data ? data->get() : nullptr; }

// Whether all that is said of a tensor lies where `same` looks.
bool comparable(PyObject* tensor) {
  return impl_of(tensor).dim() <= TensorMembers::kMaxRank && has_only_dict(tensor);
}

uint64_t difference(const void* a, const void* b) {
  return reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b);
}

// Two words at a time. 0 where both blocks of memory hold the same.
template <size_t kBytes>
uint64_t difference_of(const char* a, const char* b) {
  using Word = uint64_t;
  typedef Word Pair __attribute__((vector_size(2 * sizeof(Word))));
  static_assert(kBytes % sizeof(Word) == 0);
  Pair differ = {};
  size_t i = 0;
  for (; i + sizeof(Pair) <= kBytes; i += sizeof(Pair)) {
    Pair left, right;
    std::memcpy(&left, a + i, sizeof(Pair));
    std::memcpy(&right, b + i, sizeof(Pair));
    differ |= left ^ right;
  }
  Word rest = 0;
  if (i < kBytes) {
    Word left, right;
    std::memcpy(&left, a + i, sizeof(Word));
    std::memcpy(&right, b + i, sizeof(Word));
    rest = left ^ right;
  }
  return differ[0] | differ[1] | rest;
}

}  // namespace

TensorWatch::Seen::Seen(PyObject* object, uint32_t words)
    : object(object),
      type(Py_TYPE(object)),
      dict(comparable(object) ? existing_dict(object) : tensor_attributes(object)),
      begin(begin_of(data_of(impl_of(object)))),
      image(0),
      words(words),
      impl(&impl_of(object)),
      data(data_of(*impl)),
      gradient(nullptr) {
  if (const auto* const autograd = TensorMembers::autograd(*impl)) {
    gradient = &autograd->requires_grad_;
  }
}

inline void TensorWatch::Seen::read_ahead() const {
  const auto* const members = reinterpret_cast<const char*>(impl);
  __builtin_prefetch(reinterpret_cast<const uintptr_t*>(object) - kDictBefore);
  __builtin_prefetch(&reinterpret_cast<const THPVariable*>(object)->cdata);
  // Storage, gradients and facts lie side by side and take three lines, at times four.
  constexpr size_t kBegin = TensorMembers::storage_begin();
  static_assert(TensorMembers::facts_end() - kBegin > 2 * kCacheLine &&
                TensorMembers::facts_end() - kBegin <= 3 * kCacheLine);
  __builtin_prefetch(members + kBegin);
  __builtin_prefetch(members + kBegin + kCacheLine);
  __builtin_prefetch(members + kBegin + 2 * kCacheLine);
  __builtin_prefetch(members + TensorMembers::facts_end() - 1);
  __builtin_prefetch(data);
  __builtin_prefetch(gradient);
}

// Loads and comparisons without a branch between them: nothing differs in nearly all calls.
inline bool TensorWatch::Seen::same(const Image& image) const {
  const c10::TensorImpl& tensor = impl_of(object);
  // The number of elements follows from the sizes.
  constexpr size_t kBefore = TensorMembers::numel_begin() - TensorMembers::facts_begin();
  constexpr size_t kBehind = kBefore + sizeof(int64_t);
  const char* const facts = TensorMembers::facts(tensor);
  const char* const known = reinterpret_cast<const char*>(image.data());
  return (difference(Py_TYPE(object), type) | difference(existing_dict(object), dict) |
          difference(&tensor, impl) | difference(begin_of(data_of(tensor)), begin) |
          (static_cast<uint64_t>(requires_grad(tensor)) ^ image.back()) |
          difference_of<kBefore>(facts, known) |
          difference_of<kTensorFactBytes - kBehind>(facts + kBehind, known + kBehind)) == 0;
}

TensorWatch::Image TensorWatch::image_of(PyObject* object) {
  const c10::TensorImpl& tensor = impl_of(object);
  Image image;
  std::memcpy(image.data(), TensorMembers::facts(tensor), kTensorFactBytes);
  image.back() = comparable(object) ? requires_grad(tensor) : kIncomparable;
  return image;
}

void TensorWatch::record(const Walk& walk) {
  clear();
  seen_.reserve(walk.tensors.size());
  std::unordered_map<uint64_t, uint32_t> known;  // images by hash
  for (size_t i = 0; i < walk.tensors.size(); ++i) {
    Seen& seen = seen_.emplace_back(walk.tensors[i], walk.tensor_words[i]);
    const Image image = image_of(seen.object);
    seen.image = known.emplace(scm::hash_words(image), images_.size()).first->second;
    if (seen.image < images_.size() && images_[seen.image] == image) continue;
    seen.image = static_cast<uint32_t>(images_.size());
    images_.push_back(image);
  }
  num_shared_ = images_.size();
}

bool TensorWatch::renew(Seen& seen, const uint64_t* facts) {
  const Image& before = images_[seen.image];
  Seen now(seen.object, seen.words);
  const Image image = image_of(seen.object);
  // The key set is an image's last fact. Another dictionary is not watched, even if it is empty.
  if (now.type != seen.type || now.dict != seen.dict ||
      image[kFactWords - 1] != before[kFactWords - 1] || !tensor_matches(*now.impl, facts)) {
    return false;
  }
  now.image = seen.image;
  if (image != before || now.impl != seen.impl || now.begin != seen.begin) ++version_;
  if (image != before) {
    if (seen.image < num_shared_) {
      now.image = static_cast<uint32_t>(images_.size());
      images_.push_back(image);
    } else {
      images_[seen.image] = image;
    }
  }
  seen = now;
  return true;
}

bool TensorWatch::unchanged(const std::vector<uint64_t>& words) {
  // To and fro: what does not fit into a cache is then not all gone when it is asked for again.
  backwards_ = !backwards_;
  const std::ptrdiff_t step = backwards_ ? -1 : 1;
  Seen* seen = backwards_ ? seen_.data() + seen_.size() - 1 : seen_.data();
  const Image* images = images_.data();
  for (size_t left = seen_.size(); left != 0; --left, seen += step) {
    if (left > static_cast<size_t>(kAhead)) [[likely]]
      seen[kAhead * step].read_ahead();
    if (seen->same(images[seen->image])) [[likely]]
      continue;
    if (!renew(*seen, words.data() + seen->words)) return false;
    images = images_.data();
  }
  return true;
}

void TensorWatch::clear() {
  ++version_;
  seen_.clear();
  images_.clear();
  num_shared_ = 0;
}

}  // namespace trident::guards
