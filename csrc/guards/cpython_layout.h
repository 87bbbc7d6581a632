// What CPython knows about frames and instances but offers no function for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "guards/python.h"

namespace trident::guards {

// The function whose call a frame is; borrowed. nullptr for module and class bodies.
PyObject* function_of(PyFrameObject* frame);

// The dictionary of an instance whose type has one, made now if attributes live outside of one so
// far; borrowed. nullptr where there is none yet. The object must not have `__dict__` overridden.
PyObject* instance_dict(PyObject* object);

// Where the instance keeps its dictionary, after instance_dict() has made it; nullptr for types
// without. The place lasts as long as the object.
PyObject** instance_dict_slot(PyObject* object);

// Before an object whose type has managed dictionaries lie, on 3.11, inline values (attributes that
// are stored without a dictionary) and the dictionary, one of them null; on 3.12 either of the two,
// values marked by the lowest bit.
inline constexpr size_t kDictBefore = 3;  // words

inline uintptr_t word_before(const PyObject* object, size_t distance) {
  return *(reinterpret_cast<const uintptr_t*>(object) - distance);
}

// Where the inline values are, or 0.
inline uintptr_t inline_values(const PyObject* object) {
#if PY_VERSION_HEX >= 0x030c0000
  const uintptr_t place = word_before(object, kDictBefore);
  return place & 1 ? place + 1 : 0;
#else
  return word_before(object, kDictBefore + 1);
#endif
}

// The attributes that user code put on a tensor: a dictionary with entries (borrowed), or nullptr.
// Costs a few loads for a tensor without any, and allocates nothing then.
inline PyObject* tensor_attributes(PyObject* tensor) {
  PyObject* dict;
  if (PyType_HasFeature(Py_TYPE(tensor), Py_TPFLAGS_MANAGED_DICT)) {
    // Making a dictionary only to find it empty would cost every new tensor an allocation. The byte
    // two below the values counts how many were ever set.
    const uintptr_t values = inline_values(tensor);
    if (values == 0) {
      dict = reinterpret_cast<PyObject*>(word_before(tensor, kDictBefore));
    } else {
      if (reinterpret_cast<const uint8_t*>(values)[-2] == 0) return nullptr;
      dict = instance_dict(tensor);
    }
  } else {
    dict = instance_dict(tensor);
  }
  return dict && PyDict_GET_SIZE(dict) ? dict : nullptr;
}

// Whether a tensor has its attributes in a dictionary if anywhere, and always will: inline values are
// given to an object when it is made, and torch gives its tensors none.
inline bool has_only_dict(PyObject* tensor) {
  return PyType_HasFeature(Py_TYPE(tensor), Py_TPFLAGS_MANAGED_DICT) && inline_values(tensor) == 0;
}

// The dictionary of such a tensor, which may be empty; borrowed. nullptr where there is none yet.
inline PyObject* existing_dict(PyObject* tensor) {
  return reinterpret_cast<PyObject*>(word_before(tensor, kDictBefore));
}

// Gives an empty set the table of another, so that both iterate, and go on to grow, alike. Adding
// the elements one by one would not do: where hashes collide, the order tells which came first.
void copy_set(PyObject* original, PyObject* copy);

// Whether two sets hold the same objects in the same order, in tables of one size, and pop() would
// take the same one. Places that removed elements have left do not count.
bool same_sets(PyObject* left, PyObject* right);

// Whether both are dictionaries, both lists, or both sets.
bool comparable_items(PyObject* container, PyObject* copy);

// Whether one of these holds the same objects in the same order as a copy of it; runs no Python code.
bool same_items(PyObject* container, PyObject* copy);

}  // namespace trident::guards
