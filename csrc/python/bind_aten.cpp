// Python's view of the typed operators: `_C.typed_ops()`.
#include <pybind11/pybind11.h>

#include "aten/registry.h"

namespace trident::python {

namespace py = pybind11;

namespace {

py::dict typed_ops() {
  py::dict result;
  for (const aten::TypedOp& op : aten::typed_ops()) {
    result[op.name] = py::make_tuple(op.schema, op.cpu != nullptr, op.cuda != nullptr);
  }
  return result;
}

}  // namespace

void bind_aten(py::module_& m) {
  m.def("typed_ops", &typed_ops,
        "Typed operators of this build: overload name (\"mm.out\") to its schema without namespace "
        "and "
        "whether there is a shim for the CPU and for CUDA.");
}

}  // namespace trident::python
