// Tells library code, whose module-level objects are guarded by identity, from the user's.
#pragma once

#include "guards/python.h"

namespace trident::guards {

// Whether functions with these globals belong to a library.
bool is_library(PyObject* globals);

// Decides that. Set once from Python: a callable that takes the globals dictionary.
void set_library_predicate(PyObject* predicate);

}  // namespace trident::guards
