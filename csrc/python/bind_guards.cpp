// What capture asks of the guards: recording the code that runs, and which objects hold state.
#include <memory>

#include "guards/cpython_layout.h"
#include "guards/environment.h"
#include "guards/library.h"
#include "guards/recorder.h"
#include "guards/type_info.h"
#include "guards/walker.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace trident::python {
namespace {

void check_sets(py::handle left, py::handle right) {
  if (!PySet_Check(left.ptr()) || !PySet_Check(right.ptr())) throw py::type_error("expected sets");
}

}  // namespace

void bind_guards(py::module_& m) {
  m.def(
      "record",
      [](const py::function& body, const py::dict& refused) {
        guards::Recorder recorder(refused.ptr());
        py::object result, error = py::none();
        try {
          result = body();
        } catch (py::error_already_set& raised) {
          result = py::none();
          error = raised.value();
        }
        py::list executed;
        for (const guards::ExecutedCode& entry : recorder.executed()) {
          executed.append(py::make_tuple(py::reinterpret_borrow<py::object>(entry.code.get()),
                                         py::reinterpret_borrow<py::object>(entry.globals.get())));
        }
        py::object refusal = py::none();
        if (!recorder.refusal().empty()) {
          refusal = py::make_tuple(recorder.refusal(), recorder.refusal_place());
        }
        return py::make_tuple(result, error, executed, refusal);
      },
      py::arg("body"), py::arg("refused"),
      "Calls `body` and records the code that runs: (result, exception or None, [(code, globals)], "
      "refused call or None).");
  m.def("register_identity_type",
        [](py::handle type) { guards::register_identity_type(type.ptr()); });
  m.def(
      "stateful_globals",
      [](py::handle function) {
        if (!PyFunction_Check(function.ptr())) throw py::type_error("expected a function");
        py::list list;
        for (const auto& [name, value] : guards::stateful_globals(function.ptr())) {
          list.append(py::make_tuple(py::reinterpret_borrow<py::object>(name),
                                     py::reinterpret_borrow<py::object>(value)));
        }
        return list;
      },
      "The globals a user's function names that hold state: [(name, value)].");
  m.def("copy_set", [](py::handle original, py::handle copy) {
    check_sets(original, copy);
    guards::copy_set(original.ptr(), copy.ptr());
  });
  m.def("same_sets", [](py::handle left, py::handle right) {
    check_sets(left, right);
    return guards::same_sets(left.ptr(), right.ptr());
  });
  m.def("changed_contents", [](const py::list& held) {
    py::list changed;
    for (size_t i = 0; i < held.size(); ++i) {
      const auto [container, copy] = py::cast<std::pair<py::object, py::object>>(held[i]);
      if (!guards::comparable_items(container.ptr(), copy.ptr())) {
        throw py::type_error("pairs of dictionaries, lists or sets");
      }
      if (!guards::same_items(container.ptr(), copy.ptr())) changed.append(i);
    }
    return changed;
  });
  m.def("set_registrations", &guards::set_registrations);
  m.def("hold_tensor_classes", &guards::hold_tensor_classes);
  m.def("set_library_predicate",
        [](py::handle predicate) { guards::set_library_predicate(predicate.ptr()); });
}

}  // namespace trident::python
