// Tells cheaply whether tensors that a walk read are still as they were.
//
// What happens to a tensor in place (`.data =`, `resize_`, `requires_grad_`, a new attribute) leaves no
// trace in any dictionary, so each tensor is looked at in every call.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <vector>

#include "guards/python.h"
#include "guards/walker.h"

namespace trident::guards {

class TensorWatch {
 public:
  // Remembers the tensors of a walk as they are now. Borrows them: the watch of what holds them says
  // whether they still are where they were.
  void record(const Walk& walk);

  // Whether each tensor has the facts that the walk wrote. `words` are the walk's.
  bool unchanged(const std::vector<uint64_t>& words);

  void clear() { seen_.clear(); }

 private:
  // Tells at first sight that nothing happened to a tensor. Else it is compared in full: facts hold
  // no more of the address than its alignment, for example.
  struct Seen {
    static constexpr size_t kMaxBytes = 128;

    PyObject* object;
    PyTypeObject* type;
    const c10::TensorImpl* impl;
    const c10::StorageImpl* storage;  // nullptr for none
    const void* begin;                // of the storage's memory
    const void* autograd;             // only read ahead
    PyObject* attributes;             // a dictionary or nullptr
    uint64_t keys;                    // the dispatch key set
    uint32_t words;                   // where the tensor's words begin
    bool requires_grad;
    bool comparable;        // by its bytes
    char bytes[kMaxBytes];  // TensorMembers::facts

    Seen(PyObject* object, uint32_t words);
    bool same() const;
    // What `same` cannot tell: whether the facts in the walk's words still hold.
    bool matches(const uint64_t* facts) const;
  };

  std::vector<Seen> seen_;
};

}  // namespace trident::guards
