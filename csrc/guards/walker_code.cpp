// The walk's code: functions, classes, and the globals that functions name.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "guards/class_info.h"
#include "guards/library.h"
#include "guards/walker.h"
#include "guards/watch.h"
#include "guards/words.h"

namespace trident::guards {

bool Walker::visit_builtin(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  if (self && !PyModule_Check(self) && !PyType_Check(self) && !lenient_) {
    return fail(std::string("a method of C bound to an object of type ") + Py_TYPE(self)->tp_name);
  }
  append_identity(function);
  return true;
}

bool Walker::visit_class(PyTypeObject* type) {
  append_identity(reinterpret_cast<PyObject*>(type));
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return true;
  if (watch_) watch_->add_type(type);
  walk_.words.push_back(tagged(Tag::kClass));
  walk_.words.push_back(class_epoch(type));
  return visit_class_state(type);
}

bool Walker::visit_class_state(PyTypeObject* type) {
  if (!met_classes_.insert(type).second) return true;
  // A copy: describing a value may add to the table that this comes from.
  const std::vector<std::pair<PyObject*, PyObject*>> state = class_state(type);
  walk_.words.push_back(tagged(Tag::kClassAttributes, state.size()));
  for (const auto& [name, value] : state) {
    append_string(name);
    if (!visit(value)) return false;
  }
  return true;
}

bool Walker::visit_function_parts(PyObject* function) {
  if (watch_) watch_->add_function(function);
  append_identity(PyFunction_GET_CODE(function));
  for (PyObject* values :
       {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function)}) {
    if (!visit(values ? values : Py_None)) return false;
  }
  PyObject* attributes = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  if (!attributes || PyDict_GET_SIZE(attributes) == 0) return true;
  walk_.words.push_back(tagged(Tag::kAttributes));
  return visit_dict(attributes);
}

bool Walker::visit_function(PyObject* function) {
  walk_.words.push_back(tagged(Tag::kFunction));
  append_identity(function);
  if (!visit_function_parts(function)) return false;
  if (PyObject* closure = PyFunction_GET_CLOSURE(function)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(closure, i);
      PyObject* value = PyCell_GET(cell);
      if (watch_) watch_->add_cell(cell);
      if (!value) {
        walk_.words.push_back(tagged(Tag::kMissing));
      } else if (!visit(value)) {
        return false;
      }
    }
  }
  const std::vector<std::pair<PyObject*, PyObject*>> globals = stateful_globals(function);
  walk_.words.push_back(tagged(Tag::kGlobals, globals.size()));
  for (const auto& [name, value] : globals) {
    if (watch_) watch_->add_global(PyFunction_GET_GLOBALS(function), name);
    append_string(name);
    if (!visit(value)) return false;
  }
  return true;
}

namespace {

void collect_names(PyObject* code, std::vector<PyObject*>& names) {
  const Ref used = Ref::steal(PyObject_GetAttrString(code, "co_names"));
  const Ref constants = Ref::steal(PyObject_GetAttrString(code, "co_consts"));
  if (!used || !constants) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(used.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(used.get(), i);  // kept alive by the code object
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants.get()); ++i) {
    PyObject* constant = PyTuple_GET_ITEM(constants.get(), i);
    if (PyCode_Check(constant)) collect_names(constant, names);
  }
}

bool is_stateful(PyObject* value) {
  if (THPVariable_CheckTypeExact(Py_TYPE(value))) return true;
  const Shape shape = type_info(Py_TYPE(value)).shape;
  if (shape == Shape::kFunction) return !is_library(PyFunction_GET_GLOBALS(value));
  return holds_state(shape);
}

}  // namespace

std::vector<std::pair<PyObject*, PyObject*>> stateful_globals(PyObject* function) {
  std::vector<std::pair<PyObject*, PyObject*>> found;
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  if (is_library(globals)) return found;
  std::vector<PyObject*> names;
  collect_names(PyFunction_GET_CODE(function), names);
  for (PyObject* name : names) {
    PyObject* value = PyDict_GetItemWithError(globals, name);
    if (!value && PyErr_Occurred()) throw PythonError();
    if (value && is_stateful(value)) found.emplace_back(name, value);
  }
  return found;
}

}  // namespace trident::guards
