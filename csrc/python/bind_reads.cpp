// What a trace read besides its arguments and state, recorded when it ends.
#include "python/bindings.h"
#include "python/call_facts.h"
#include "python/errors.h"

namespace py = pybind11;

namespace trident::python {
namespace {

RecordedReads record(const py::list& reads) {
  RecordedReads result;
  for (const py::handle read : reads) {
    const auto triple = py::reinterpret_borrow<py::tuple>(read);
    const py::object source = triple[0], name = triple[1];
    if (source.is_none()) {
      result.reads.add_autocast_region(py::cast<bool>(name));
      continue;
    }
    if (triple[2].is_none()) {
      result.reads.add_limit(source.ptr(), py::cast<Py_ssize_t>(name));
      continue;
    }
    const bool deep = py::cast<bool>(triple[2]);
    if (PyType_Check(source.ptr())) {
      result.reads.add_type(reinterpret_cast<PyTypeObject*>(source.ptr()));
    } else if (name.is_none()) {
      result.reads.add_cell(source.ptr(), deep);
    } else {
      result.reads.add_global(source.ptr(), name.ptr(), deep);
    }
  }
  const std::string problem = translated([&] { return result.reads.record(); });
  if (!problem.empty()) throw py::value_error("the call reads a global that is " + problem);
  return result;
}

}  // namespace

void bind_reads(py::module_& m) {
  py::class_<RecordedReads>(m, "Reads",
                            "The present values of what a trace read; publish() takes it over.")
      .def(py::init(&record), py::arg("reads"))
      .def("unchanged",
           [](RecordedReads& self) { return translated([&] { return self.reads.unchanged(); }); });
}

}  // namespace trident::python
