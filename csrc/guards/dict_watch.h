// Tells whether any watched dictionary changed, without looking at each.
//
// CPython 3.12 calls a watcher on every change of a dictionary that was given to it; this one counts.
// Before, there are version tags alone, one per dictionary.
#pragma once

#include <cstdint>

#include "guards/python.h"

namespace trident::guards {

#if PY_VERSION_HEX >= 0x030c0000

// From now on, changes of this dictionary are counted. Changes its version tag.
void count_changes(PyObject* dict);

// How often dictionaries that were given to count_changes() have changed, in all.
uint64_t num_dict_changes();

#else

inline void count_changes(PyObject*) {}

#endif

}  // namespace trident::guards
