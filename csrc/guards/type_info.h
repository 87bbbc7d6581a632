// How the walker treats the objects of a Python type. Decided once per type.
#pragma once

#include <string>
#include <vector>

#include "guards/python.h"

namespace trident::guards {

enum class Shape {
  kUnsupported,  // nothing sound can be said about such an object
  kIdentity,     // a leaf, the same object every time: modules, kernels, enum members
  kInt,          // int and subclasses
  kFloat,
  kComplex,
  kNumpyScalar,  // numpy.float32(1.5): its type and bytes
  kString,
  kBytes,
  kTuple,
  kList,
  kDeque,  // collections.deque itself
  kDict,
  kSet,
  kObject,  // attributes only
  kFunction,
  kBuiltin,  // a function of C, perhaps bound to an object
  kClass,
  kWeakRef,
  kMethod,   // bound method
  kPartial,  // functools.partial
  kDevice,   // torch.device
  kRange,    // range and slice: three immutable members
  kSlice,
};

struct TypeInfo {
  Shape shape = Shape::kUnsupported;
  bool exact = false;             // a builtin type itself: no attributes of its own
  bool named = false;             // an exact type that shares its shape with another one
  bool has_dict = false;          // instances carry a __dict__
  std::vector<Py_ssize_t> slots;  // offsets of __slots__ members
  std::vector<std::string> slot_names;
  std::vector<Ref> slot_keys;  // the same; NULL where a base has a slot of this name, too
};

// The description of `type`, cached for as long as the type lives.
const TypeInfo& type_info(PyTypeObject* type);

// Whether what an object of this shape holds can change while it stays the same object. Of functions
// and classes, where they belong decides that.
bool holds_state(Shape shape);

// Objects of `type` and its subclasses are leaves guarded by identity. Called once per type, before
// there are objects of its subclasses.
void register_identity_type(PyObject* type);

}  // namespace trident::guards
