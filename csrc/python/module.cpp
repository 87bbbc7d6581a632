// The extension module trident._C. Import torch before it: its libraries are used from there.
#include "python/bindings.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Trident's native runtime.";
  m.attr("compiler") = "g++ " __VERSION__;
  trident::python::bind_aten(m);
  trident::python::bind_driver(m);
  trident::python::bind_host(m);
  trident::python::bind_guards(m);
  trident::python::bind_callable(m);
  trident::python::bind_facts(m);
  trident::python::bind_reads(m);
  trident::python::bind_scm(m);
  trident::python::bind_report(m);
  trident::python::bind_builtins(m);
  trident::python::bind_modules(m);
}
