// Tells cheaply whether tensors that a walk read are still as they were.
//
// What happens to a tensor in place (`.data =`, `resize_`, `requires_grad_`, a new attribute) leaves no
// trace in any dictionary, so each tensor is looked at in every call: at some six cache lines all over
// the heap, and one of the watch's own.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "guards/python.h"
#include "guards/tensor_facts.h"
#include "guards/walker.h"

namespace trident::guards {

class TensorWatch {
 public:
  // Remembers the tensors of a walk as they are now. Borrows them: the watch of what holds them says
  // whether they still are where they were, and what happened in dictionaries of their attributes.
  void record(const Walk& walk);

  // Whether each tensor has the facts that the walk wrote. `words` are the walk's.
  bool unchanged(const std::vector<uint64_t>& words);

  // Another number once a tensor's memory, its place there or its TensorImpl may be another than before.
  uint64_t version() const { return version_; }

  void clear();

 private:
  static constexpr size_t kCacheLine = 64;

  // What a tensor's own memory holds: its facts, and whether it requires gradients as 0 or 1. Tensors
  // of one shape mostly share theirs, so it stays in the first-level cache.
  static constexpr size_t kFactWords = kTensorFactBytes / sizeof(uint64_t);
  using Image = std::array<uint64_t, kFactWords + 1>;

  // Tells at first sight that nothing happened to a tensor. Else it is compared in full: facts hold
  // no more of the address than its alignment, for example.
  struct alignas(kCacheLine) Seen {
    PyObject* object;
    PyTypeObject* type;
    PyObject* dict;     // of attributes, or nullptr
    const void* begin;  // of the storage's memory
    uint32_t image;
    uint32_t words;  // where the tensor's words begin
    const c10::TensorImpl* impl;
    // Only read ahead. What is compared is what the object leads to now, which may lie elsewhere.
    const void* data;      // where `begin` was found
    const void* gradient;  // where AutogradMeta::requires_grad_ was, or nullptr

    Seen(PyObject* object, uint32_t words);
    bool same(const Image& image) const;
    void read_ahead() const;
  };
  static_assert(sizeof(Seen) == kCacheLine);

  static Image image_of(PyObject* tensor);
  // Compares in full, and remembers how the tensor is now. False where its facts do not hold.
  bool renew(Seen& seen, const uint64_t* facts);

  std::vector<Seen> seen_;
  std::vector<Image> images_;
  uint64_t version_ = 1;
  bool backwards_ = false;  // how they were last looked through
  size_t num_shared_ = 0;   // of the images; each one behind these is of one tensor
};

}  // namespace trident::guards
