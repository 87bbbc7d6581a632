// `isinstance` while a call is traced over symbols: it takes a symbolic number for a number.
#include "python/bindings.h"

namespace py = pybind11;

namespace trident::python {
namespace {

// `self` is (types, answer): of values of these types `answer` decides, of others Python itself.
// PyTorch's tracing asks hundreds of thousands of times, so this must cost what the builtin does.
PyObject* is_instance(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) {
    return PyErr_Format(PyExc_TypeError, "isinstance expected 2 arguments, got %zd", count);
  }
  PyObject* const types = PyTuple_GET_ITEM(self, 0);
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(types); ++index) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(arguments[0])) == PyTuple_GET_ITEM(types, index)) {
      return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 1), arguments, 2, nullptr);
    }
  }
  const int found = PyObject_IsInstance(arguments[0], arguments[1]);
  return found < 0 ? nullptr : PyBool_FromLong(found);
}

PyMethodDef definition = {"isinstance",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&is_instance)),
                          METH_FASTCALL, "isinstance(object, class_or_tuple)"};

}  // namespace

void bind_type_tests(py::module_& m) {
  m.def(
      "isinstance_but_for",
      [](const py::tuple& types, const py::function& answer) {
        const py::tuple self = py::make_tuple(types, answer);
        PyObject* made = PyCFunction_New(&definition, self.ptr());
        if (!made) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(made);
      },
      py::arg("types"), py::arg("answer"),
      "The builtin isinstance, but that `answer` is asked about values of exactly these types.");
}

}  // namespace trident::python
