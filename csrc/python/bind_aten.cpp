// Python's view of what the runtime calls PyTorch for: typed operators, autocast's casts.
#include <pybind11/pybind11.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "aten/registry.h"
#include "guards/environment.h"
#include "python/autocast_input.h"

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

py::object autocast_cast(const py::object& tensor, const py::object& dtype) {
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("not a tensor");
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("not a dtype");
  const at::Tensor cast = AutocastInput::cached_cast(
      reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, THPVariable_Unpack(tensor.ptr()));
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(cast));
}

}  // namespace

void bind_aten(py::module_& m) {
  m.def("typed_ops", &typed_ops,
        "Typed operators of this build: overload name (\"mm.out\") to its schema without namespace "
        "and "
        "whether there is a shim for the CPU and for CUDA.");
  m.def("in_autocast_region", &guards::in_autocast_region,
        "Whether the thread is in a `torch.autocast` context, be it one that turns autocast off.");
  m.def("autocast_cast", &autocast_cast, py::arg("tensor"), py::arg("dtype"),
        "The cast that autocast keeps of a tensor, made now if it keeps none.");
}

}  // namespace trident::python
