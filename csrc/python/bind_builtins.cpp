// Builtin functions while a call is traced over symbols: they take a symbolic number for a number.
#include "python/bindings.h"

namespace py = pybind11;

namespace trident::python {
namespace {

// `self` is (function, types, answer): if the first argument has one of these types, `answer` is
// called, else the function. PyTorch's tracing asks hundreds of thousands of times, so this must cost
// what the builtin does.
PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  PyObject* callee = PyTuple_GET_ITEM(self, 0);
  if (count > 0) {
    PyObject* const types = PyTuple_GET_ITEM(self, 1);
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(types); ++index) {
      if (reinterpret_cast<PyObject*>(Py_TYPE(arguments[0])) == PyTuple_GET_ITEM(types, index)) {
        callee = PyTuple_GET_ITEM(self, 2);
        break;
      }
    }
  }
  return PyObject_Vectorcall(callee, arguments, static_cast<size_t>(count), nullptr);
}

PyMethodDef definition = {"builtin_but_for",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)),
                          METH_FASTCALL, "A builtin function, while a call is traced."};

}  // namespace

void bind_builtins(py::module_& m) {
  m.def(
      "builtin_but_for",
      [](const py::function& function, const py::tuple& types, const py::function& answer) {
        const py::tuple self = py::make_tuple(function, types, answer);
        PyObject* made = PyCFunction_New(&definition, self.ptr());
        if (!made) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(made);
      },
      py::arg("function"), py::arg("types"), py::arg("answer"),
      "A builtin function, but that `answer` is called where the first argument is of exactly one "
      "of these types.");
}

}  // namespace trident::python
