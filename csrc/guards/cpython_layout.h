// What CPython knows about frames and instances but offers no function for.
#pragma once

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

// The attributes that user code put on a tensor: a dictionary with entries (borrowed), or nullptr.
// Costs a few loads for a tensor without any, and allocates nothing then.
inline PyObject* tensor_attributes(PyObject* tensor) {
  PyObject* dict;
  if (PyType_HasFeature(Py_TYPE(tensor), Py_TPFLAGS_MANAGED_DICT)) {
    // Attributes may be stored inline, without a dictionary; making one only to find it empty would
    // cost every new tensor an allocation. Before the object lie, on 3.11, inline values and
    // dictionary; on 3.12 one of the two, values marked by the lowest bit. The byte two below the
    // values counts how many were ever set.
    const auto* words = reinterpret_cast<const uintptr_t*>(tensor);
    const uintptr_t place = words[-3];
#if PY_VERSION_HEX >= 0x030c0000
    const uintptr_t values = place & 1 ? place + 1 : 0;
#else
    const uintptr_t values = words[-4];
#endif
    if (values == 0) {
      dict = reinterpret_cast<PyObject*>(place);
    } else {
      if (reinterpret_cast<const uint8_t*>(values)[-2] == 0) return nullptr;
      dict = instance_dict(tensor);
    }
  } else {
    dict = instance_dict(tensor);
  }
  return dict && PyDict_GET_SIZE(dict) ? dict : nullptr;
}

}  // namespace trident::guards
