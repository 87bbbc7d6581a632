#include "guards/library.h"

#include <string>
#include <unordered_map>

namespace trident::guards {

namespace {
PyObject* library_predicate = nullptr;
}

bool is_library(PyObject* globals) {
  // A shadow's functions have a copy of their globals, which names the original.
  if (PyObject* original = PyDict_GetItemString(globals, "__trident_globals__")) {
    return is_library(original);
  }
  // By file, where there is one: holding the dictionary itself would keep its module alive.
  static auto* known = new std::unordered_map<std::string, bool>();
  PyObject* file = PyDict_GetItemString(globals, "__file__");
  const char* path = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
  if (path) {
    const auto found = known->find(path);
    if (found != known->end()) return found->second;
  }
  PyErr_Clear();
  if (!library_predicate) return false;
  const std::string key = path ? path : "";
  const Ref answer = Ref::steal(PyObject_CallOneArg(library_predicate, globals));
  if (!answer) throw PythonError();
  const bool library = answer.get() == Py_True;
  if (path) known->emplace(key, library);
  return library;
}

void set_library_predicate(PyObject* predicate) {
  Py_XINCREF(predicate);
  Py_XSETREF(library_predicate, predicate);
}

}  // namespace trident::guards
