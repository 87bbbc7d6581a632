// One call as the miss path sees it: arguments in vectorcall form, and facts that own what they name.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "guards/walker.h"
#include "python/specialization.h"

namespace trident::python {

// A call's arguments in vectorcall form.
struct Call {
  std::vector<PyObject*> arguments;
  size_t num_positional;
  pybind11::tuple names;

  Call(const pybind11::tuple& positional, const pybind11::dict& keywords)
      : num_positional(positional.size()) {
    pybind11::list keys;
    for (const pybind11::handle value : positional) arguments.push_back(value.ptr());
    for (const auto& [key, value] : keywords) {
      keys.append(key);
      arguments.push_back(value.ptr());
    }
    names = pybind11::tuple(keys);
  }
  PyObject* keyword_names() const { return names.empty() ? nullptr : names.ptr(); }
};

// The facts of one call, kept for a compilation: owns what the walks only borrow.
struct Facts {
  CallFacts facts;
  std::vector<uint32_t> starts;  // of each argument's words
  guards::Walk state;
  pybind11::tuple positional;
  pybind11::dict keywords;
  std::vector<guards::Ref> kept;
};

// What a trace read besides arguments and state, on the way from the trace's end to publication.
struct RecordedReads {
  guards::Reads reads;
};

}  // namespace trident::python
