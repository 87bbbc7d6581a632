// The parts that make up the extension module.
#pragma once

#include <pybind11/pybind11.h>

namespace trident::python {

void bind_aten(pybind11::module_& m);
void bind_builtins(pybind11::module_& m);
void bind_modules(pybind11::module_& m);
void bind_callable(pybind11::module_& m);
void bind_driver(pybind11::module_& m);
void bind_facts(pybind11::module_& m);
void bind_guards(pybind11::module_& m);
void bind_host(pybind11::module_& m);
void bind_reads(pybind11::module_& m);
void bind_report(pybind11::module_& m);
void bind_scm(pybind11::module_& m);

}  // namespace trident::python
