// What CPython knows about frames and instances but offers no function for.
#pragma once

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
// Costs two loads for a tensor without any, and allocates nothing then.
PyObject* tensor_attributes(PyObject* tensor);

}  // namespace trident::guards
