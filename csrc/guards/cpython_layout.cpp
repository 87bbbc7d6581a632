#include "guards/cpython_layout.h"

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030d0000
#error "Trident supports CPython 3.11 and 3.12"
#endif

// The internal header holds the layout of interpreter frames.
#undef _PyGC_FINALIZED
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

namespace trident::guards {

PyObject* function_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030c0000
  PyObject* function = frame->f_frame->f_funcobj;
#else
  PyObject* function = reinterpret_cast<PyObject*>(frame->f_frame->f_func);
#endif
  return function && PyFunction_Check(function) ? function : nullptr;
}

PyObject** instance_dict_slot(PyObject* object) { return _PyObject_GetDictPtr(object); }

PyObject* instance_dict(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  return slot ? *slot : nullptr;
}

PyObject* tensor_attributes(PyObject* tensor) {
  if (PyType_HasFeature(Py_TYPE(tensor), Py_TPFLAGS_MANAGED_DICT)) {
    // Attributes may be stored inline, without a dictionary; making one only to find it empty would
    // cost every new tensor an allocation. Before the object lie, on 3.11, inline values and
    // dictionary; on 3.12 one of the two, values marked by the lowest bit. The byte two below the
    // values counts how many were ever set.
    const auto* words = reinterpret_cast<const uintptr_t*>(tensor);
#if PY_VERSION_HEX >= 0x030c0000
    const uintptr_t place = words[-3];
    if (place == 0) return nullptr;
    const uintptr_t values = place & 1 ? place + 1 : 0;
#else
    const uintptr_t values = words[-4];
    if (values == 0 && words[-3] == 0) return nullptr;
#endif
    if (values != 0 && reinterpret_cast<const uint8_t*>(values)[-2] == 0) return nullptr;
  }
  PyObject* dict = instance_dict(tensor);
  return dict && PyDict_GET_SIZE(dict) ? dict : nullptr;
}

}  // namespace trident::guards
