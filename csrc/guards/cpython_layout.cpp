#include "guards/cpython_layout.h"

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030d0000
#error "Trident supports CPython 3.11 and 3.12"
#endif

// The internal header holds the layout of interpreter frames.
#undef _PyGC_FINALIZED
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#include <algorithm>

namespace trident::guards {
namespace {

size_t entries_of(const PySetObject* set) { return static_cast<size_t>(set->mask) + 1; }

// A removed element leaves a marker, which the table does not own.
bool holds_element(const setentry& entry) { return entry.key && entry.hash != -1; }

}  // namespace

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

void copy_set(PyObject* original, PyObject* copy) {
  const auto* from = reinterpret_cast<const PySetObject*>(original);
  auto* to = reinterpret_cast<PySetObject*>(copy);
  if (to->fill != 0 || to->table != to->smalltable) {
    PyErr_SetString(PyExc_ValueError, "the copy must be a new set");
    throw PythonError();
  }
  if (from->table != from->smalltable) {
    auto* table = static_cast<setentry*>(PyMem_Malloc(entries_of(from) * sizeof(setentry)));
    if (!table) {
      PyErr_NoMemory();
      throw PythonError();
    }
    to->table = table;
  }
  to->fill = from->fill;
  to->used = from->used;
  to->mask = from->mask;
  to->finger = from->finger;
  std::copy_n(from->table, entries_of(from), to->table);
  std::for_each_n(to->table, entries_of(to), [](const setentry& entry) {
    if (holds_element(entry)) Py_INCREF(entry.key);
  });
}

bool same_sets(PyObject* left, PyObject* right) {
  const auto* one = reinterpret_cast<const PySetObject*>(left);
  const auto* two = reinterpret_cast<const PySetObject*>(right);
  if (one->used != two->used || one->mask != two->mask || one->finger != two->finger) return false;
  const setentry* end = one->table + entries_of(one);
  const setentry* other = two->table;
  for (const setentry* entry = one->table; entry != end; ++entry) {
    if (!holds_element(*entry)) continue;
    while (!holds_element(*other)) ++other;  // as many elements are left as in `one`
    if (entry->key != other->key) return false;
    ++other;
  }
  return true;
}

bool comparable_items(PyObject* container, PyObject* copy) {
  return (PyDict_Check(container) && PyDict_Check(copy)) ||
         (PyList_Check(container) && PyList_Check(copy)) ||
         (PyAnySet_Check(container) && PyAnySet_Check(copy));
}

bool same_items(PyObject* container, PyObject* copy) {
  if (PyAnySet_Check(container)) return same_sets(container, copy);
  if (PyList_Check(container)) {
    const Py_ssize_t size = PyList_GET_SIZE(container);
    if (size != PyList_GET_SIZE(copy)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PyList_GET_ITEM(container, i) != PyList_GET_ITEM(copy, i)) return false;
    }
    return true;
  }
  if (PyDict_GET_SIZE(container) != PyDict_GET_SIZE(copy)) return false;
  Py_ssize_t position = 0, other = 0;
  PyObject *key, *value, *known_key, *known_value;
  while (PyDict_Next(container, &position, &key, &value)) {
    PyDict_Next(copy, &other, &known_key, &known_value);
    if (key != known_key || value != known_value) return false;
  }
  return true;
}

}  // namespace trident::guards
