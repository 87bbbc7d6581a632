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
    for (const guards::Scalar& scalar : walk->scalars) {
      if (scalar.key) result->kept.push_back(guards::Ref::borrow(scalar.key));
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

// Kinds of soft words, as trident/capture/soft_words.py numbers them.
enum class SoftKind {
  kSize,
  kStride,
  kAlignment,
  kIntArgument,
  kFloatArgument,
  kIntItem,
  kFloatItem,
  kIntAttribute,
  kFloatAttribute,
};

py::tuple soft_word(size_t position, SoftKind kind, size_t index, py::object place) {
  return py::make_tuple(position, static_cast<int>(kind), index, std::move(place));
}

bool is_float(const guards::Walk& walk, size_t value_word) {
  return walk.words[value_word - 1] == guards::tagged(guards::Tag::kFloat);
}

// The soft words of one walk. `position`, `tensor` and `container` are added to what it counts.
void append_soft_words(py::list& list, const guards::Walk& walk, size_t position, size_t tensor,
                       size_t container) {
  for (size_t i = 0; i < walk.tensors.size() && i < walk.tensor_words.size(); ++i) {
    const auto rank = static_cast<size_t>(THPVariable_Unpack(walk.tensors[i]).dim());
    const size_t start = position + walk.tensor_words[i] + 1;
    for (size_t axis = 0; axis < rank; ++axis) {
      list.append(soft_word(start + axis, SoftKind::kSize, tensor + i, py::int_(axis)));
    }
    for (size_t axis = 0; axis < rank; ++axis) {
      list.append(soft_word(start + rank + axis, SoftKind::kStride, tensor + i, py::int_(axis)));
    }
    list.append(soft_word(start + 2 * rank, SoftKind::kAlignment, tensor + i, py::int_(0)));
  }
  for (const guards::Scalar& scalar : walk.scalars) {
    const bool number = is_float(walk, scalar.word);
    const SoftKind kind = scalar.attribute
                              ? (number ? SoftKind::kFloatAttribute : SoftKind::kIntAttribute)
                              : (number ? SoftKind::kFloatItem : SoftKind::kIntItem);
    py::object place = py::int_(scalar.index);
    if (scalar.key) place = py::reinterpret_borrow<py::object>(scalar.key);
    list.append(
        soft_word(position + scalar.word, kind, container + scalar.container, std::move(place)));
  }
}

// The words that may differ between calls of one specialization, as (position, kind, index, place):
// of tensors (index) by axis, of arguments (index, keyword arguments last), and of containers (index)
// by key or attribute. Positions in the state are counted behind the call's own words.
py::list soft_words(const Facts& facts) {
  py::list list;
  const guards::Walk& walk = facts.facts.arguments;
  append_soft_words(list, walk, 0, 0, 0);
  append_soft_words(list, facts.state, walk.words.size(), walk.tensors.size(),
                    walk.containers.size());
  std::vector<py::handle> arguments(facts.positional.begin(), facts.positional.end());
  for (const auto& [key, value] : facts.keywords) arguments.push_back(value);
  for (size_t i = 0; i < facts.starts.size(); ++i) {
    const size_t start = facts.starts[i];
    // The tag of a long int says that its digits follow.
    if (PyLong_CheckExact(arguments[i].ptr()) &&
        walk.words[start] == guards::tagged(guards::Tag::kInt)) {
      list.append(soft_word(start + 1, SoftKind::kIntArgument, i, py::int_(0)));
    } else if (PyFloat_CheckExact(arguments[i].ptr())) {
      list.append(soft_word(start + 1, SoftKind::kFloatArgument, i, py::int_(0)));
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
      .def_property_readonly(
          "num_argument_containers",
          [](const Facts& self) { return self.facts.arguments.containers.size(); })
      .def_property_readonly("closed_lists",
                             [](const Facts& self) {
                               py::list list;
                               const size_t first = self.facts.arguments.containers.size();
                               for (const uint32_t each : self.state.closed) {
                                 list.append(first + each);
                               }
                               return list;
                             })
      .def_property_readonly("argument_words", [](const Facts& self) { return self.starts; })
      .def_property_readonly("state_word", [](const Facts& self) { return self.facts.state_word; })
      .def_property_readonly("state_words", [](const Facts& self) { return self.state.words; });

  m.def("collect", &collect, py::arg("scm"), py::arg("args"), py::arg("kwargs"));
}

}  // namespace trident::python
