// How the walker treats the objects of a Python type. Decided once per type.
#pragma once

#include <vector>

#include "guards/python.h"

namespace trident::guards {

enum class Shape {
  kUnsupported,  // nothing sound can be said about such an object
  kIdentity,  // a leaf, the same object every time: functions, classes, modules, kernels, enum members
  kInt,       // int and subclasses
  kFloat,
  kComplex,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  kObject,  // attributes only
  kFunction,
  kMethod,   // bound method
  kPartial,  // functools.partial
  kDevice,   // torch.device
  kRange,    // range and slice: three immutable members
  kSlice,
};

struct TypeInfo {
  Shape shape = Shape::kUnsupported;
  bool exact = false;             // a builtin type itself: no attributes of its own
  bool has_dict = false;          // instances carry a __dict__
  std::vector<Py_ssize_t> slots;  // offsets of __slots__ members
  std::vector<Ref> slot_names;
};

// A number that changes when the class, or one of its bases, gets other attributes (a patched
// method). Attributes that are changed and changed back leave it as it is.
uint64_t class_epoch(PyTypeObject* type);

// CPython's version tag of a type, made valid first; 0 where the type can have none.
unsigned int type_version(PyTypeObject* type);

// The cached description of `type`. Keeps a reference to the type.
const TypeInfo& type_info(PyTypeObject* type);

// Objects of `type` and its subclasses are leaves guarded by identity. Called once per type at import.
void register_identity_type(PyObject* type);

}  // namespace trident::guards
