#include "python/call_facts.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "guards/words.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "python/scm_object.h"

namespace py = pybind11;

namespace trident::python {
namespace {

std::unique_ptr<Facts> collect(py::handle scm, py::tuple positional, py::dict keywords) {
  Module& module = module_of(scm);
  auto result = std::make_unique<Facts>();
  const Call call(positional, keywords);
  translated([&] {
    module.collect(call.arguments.data(), call.num_positional, call.keyword_names(), result->facts,
                   &result->starts);
  });
  result->state = *result->facts.state;
  result->facts.state = &result->state;
  result->positional = std::move(positional);
  result->keywords = std::move(keywords);
  for (const guards::Walk* walk : {&result->facts.arguments, &result->state}) {
    for (const auto* objects : {&walk->tensors, &walk->containers, &walk->identities}) {
      for (PyObject* object : *objects) result->kept.push_back(guards::Ref::borrow(object));
    }
  }
  return result;
}

py::list object_list(const std::vector<PyObject*>& first, const std::vector<PyObject*>& second) {
  py::list list;
  for (const auto* objects : {&first, &second}) {
    for (PyObject* object : *objects) list.append(py::reinterpret_borrow<py::object>(object));
  }
  return list;
}

// The words that may differ between calls of one specialization: sizes and strides of the argument
// tensors, and ints that are arguments themselves. As (position, kind, index, axis): kind 0 is a size
// and 1 a stride of tensor `index`, 2 the argument `index`, keyword arguments last.
py::list soft_words(const Facts& facts) {
  py::list list;
  const guards::Walk& walk = facts.facts.arguments;
  for (size_t i = 0; i < walk.tensors.size() && i < walk.tensor_words.size(); ++i) {
    const auto rank = static_cast<size_t>(THPVariable_Unpack(walk.tensors[i]).dim());
    for (size_t word = 0; word < 2 * rank; ++word) {
      list.append(py::make_tuple(walk.tensor_words[i] + 1 + word, word / rank, i, word % rank));
    }
  }
  std::vector<py::handle> arguments(facts.positional.begin(), facts.positional.end());
  for (const auto& [key, value] : facts.keywords) arguments.push_back(value);
  for (size_t i = 0; i < facts.starts.size(); ++i) {
    const size_t start = facts.starts[i];
    // The tag of a long int says that its digits follow.
    if (PyLong_CheckExact(arguments[i].ptr()) &&
        walk.words[start] == guards::tagged(guards::Tag::kInt)) {
      list.append(py::make_tuple(start + 1, 2, i, 0));
    }
  }
  return list;
}

}  // namespace

void bind_facts(py::module_& m) {
  py::class_<Facts>(m, "Facts", "What one call shows: tensors and containers, arguments first.")
      .def_property_readonly("unsupported",
                             [](const Facts& self) -> py::object {
                               const std::string& reason = self.facts.arguments.unsupported;
                               if (reason.empty()) return py::none();
                               return py::str(reason);
                             })
      .def_property_readonly("tensors",
                             [](const Facts& self) {
                               return object_list(self.facts.arguments.tensors, self.state.tensors);
                             })
      .def_property_readonly("num_argument_tensors",
                             [](const Facts& self) { return self.facts.arguments.tensors.size(); })
      .def_property_readonly("containers",
                             [](const Facts& self) {
                               return object_list(self.facts.arguments.containers,
                                                  self.state.containers);
                             })
      .def_property_readonly("identities",
                             [](const Facts& self) {
                               return object_list(self.facts.arguments.identities,
                                                  self.state.identities);
                             })
      .def("agree",
           [](const Facts& self, const Facts& other) {
             return self.facts.arguments.words == other.facts.arguments.words &&
                    self.state.words == other.state.words;
           })
      .def_property_readonly("soft_words", &soft_words)
      .def_property_readonly("words", [](const Facts& self) { return self.facts.arguments.words; })
      .def_property_readonly("state_words", [](const Facts& self) { return self.state.words; });

  m.def("collect", &collect, py::arg("scm"), py::arg("args"), py::arg("kwargs"));
}

}  // namespace trident::python
