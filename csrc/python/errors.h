// C++ exceptions as Python exceptions, as PyTorch raises them: an IndexError of an operator is an
// IndexError for the user, and buffered C++ warnings become Python warnings.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <utility>

#include "driver/kernel.h"
#include "guards/python.h"

namespace trident::python {

// Throws what Triton's launcher raises for a kernel that does not fit its device: triton's own
// OutOfResources, with its arguments.
[[noreturn]] inline void throw_out_of_resources(const driver::OutOfResources& error) {
  const pybind11::object type =
      pybind11::module_::import("triton.runtime.errors").attr("OutOfResources");
  const pybind11::object exception = type(error.required(), error.limit(), error.resource());
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw pybind11::error_already_set();
}

// Runs `body`, with the interpreter lock held before and after; what it throws leaves as
// pybind11::error_already_set. For functions that pybind11 calls.
template <typename Body>
decltype(auto) translated(Body&& body) {
  HANDLE_TH_ERRORS
  try {
    return std::forward<Body>(body)();
  } catch (const driver::OutOfResources& error) {
    throw_out_of_resources(error);
  } catch (const guards::PythonError&) {
    throw pybind11::error_already_set();
  }
  END_HANDLE_TH_ERRORS_PYBIND
}

// The same for functions that CPython calls: `body` returns a new reference; the result is NULL with
// the Python exception set where it throws.
template <typename Body>
PyObject* translated_or_null(Body&& body) noexcept {
  try {
    return translated(std::forward<Body>(body));
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
  return nullptr;
}

}  // namespace trident::python
