// What a class defines: whether it was patched, and the mutable values that it holds.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "guards/python.h"

namespace trident::guards {

// A number for what the class and its bases define: another one once an attribute is patched, the
// earlier one once it is put back.
uint64_t class_epoch(PyTypeObject* type);

// An attribute that a class defines otherwise, or not at all, in one of two versions.
struct ClassChange {
  std::string name;
  Ref before;  // empty where there was none, or it is gone
  Ref now;
};

// What differs between two epochs of a class; empty where one of them has been forgotten.
std::vector<ClassChange> class_changes(PyTypeObject* type, uint64_t before, uint64_t now);

// CPython's version tag of a type, made valid first; 0 where the type can have none.
unsigned int type_version(PyTypeObject* type);

// The attributes of the user's classes in the hierarchy whose contents can change while the
// attribute stays: lists, dictionaries, objects, tensors, nested classes. Borrowed (name, value).
const std::vector<std::pair<PyObject*, PyObject*>>& class_state(PyTypeObject* type);

// Whether a class statement outside of libraries made this type.
bool is_user_class(PyTypeObject* type);

}  // namespace trident::guards
