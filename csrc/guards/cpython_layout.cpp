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

}  // namespace trident::guards
