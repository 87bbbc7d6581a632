// What reports are made of: the words of specializations and calls, and how to read them.
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "guards/class_info.h"
#include "guards/describe.h"
#include "guards/environment.h"
#include "guards/type_info.h"
#include "guards/words.h"
#include "python/bindings.h"
#include "python/call_facts.h"
#include "python/errors.h"
#include "python/scm_object.h"

namespace py = pybind11;

namespace trident::python {
namespace {

using guards::Tag;
using Words = std::vector<uint64_t>;

py::object borrowed(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }

size_t num_different(const Words& mine, const Words& its, const std::vector<uint32_t>& open) {
  size_t count = mine.size() > its.size() ? mine.size() - its.size() : its.size() - mine.size();
  auto next = open.begin();
  for (size_t i = 0; i < std::min(mine.size(), its.size()); ++i) {
    while (next != open.end() && *next < i) ++next;
    count += mine[i] != its[i] && (next == open.end() || *next != i);
  }
  return count;
}

Specialization& specialization_of(Module& module, py::handle record) {
  for (const auto& entry : module.table().entries()) {
    auto& specialization = static_cast<Specialization&>(*entry);
    if (specialization.info.get() == record.ptr()) return specialization;
  }
  throw py::key_error("this specialization has been dropped");
}

// The record of the specialization from whose facts a call's differ least, or None.
py::object nearest(py::handle scm, const Facts& facts) {
  const Specialization* best = nullptr;
  size_t least = std::numeric_limits<size_t>::max();
  const auto entries = module_of(scm).table().entries();
  for (const auto& entry : entries) {
    const auto& specialization = static_cast<const Specialization&>(*entry);
    const size_t num_words = specialization.words.size();
    std::vector<uint32_t> of_state;
    for (const uint32_t position : specialization.open) {
      if (position >= num_words) {
        of_state.push_back(position - static_cast<uint32_t>(num_words));
      }
    }
    size_t count =
        num_different(facts.facts.arguments.words, specialization.words, specialization.open);
    if (specialization.state_words) {
      count += num_different(facts.state.words, *specialization.state_words, of_state);
    }
    if (count < least || (count == least && specialization.hits > best->hits)) {
      least = count;
      best = &specialization;
    }
  }
  return best ? borrowed(best->info.get()) : py::none();
}

py::dict by_address(const std::vector<PyObject*>& objects) {
  py::dict found;
  for (PyObject* object : objects)
    found[py::int_(reinterpret_cast<uint64_t>(object))] = borrowed(object);
  return found;
}

std::vector<PyObject*> addresses(const std::vector<guards::Ref>& objects) {
  std::vector<PyObject*> found;
  for (const guards::Ref& object : objects) found.push_back(object.get());
  return found;
}

py::tuple as_tuple(const guards::Reads::Description& reads) {
  return py::make_tuple(reads.words, reads.starts, by_address(addresses(reads.identities)));
}

py::dict guards_of(py::handle scm, py::handle record) {
  Module& module = module_of(scm);
  const Specialization& found = specialization_of(module, record);
  std::vector<PyObject*> objects = addresses(found.identities);
  for (PyObject* object : module.state().identities_of(found.state_words.get())) {
    objects.push_back(object);
  }
  py::dict result;
  result["words"] = found.words;
  result["symbolic"] = found.open;
  result["state_words"] = found.state_words ? py::cast(*found.state_words) : py::none();
  result["objects"] = by_address(objects);
  result["reads"] = as_tuple(found.reads.recorded());
  return result;
}

py::object present_reads(py::handle scm, py::handle record) {
  const Specialization& found = specialization_of(module_of(scm), record);
  const auto now = translated([&] { return found.reads.present(); });
  return now ? py::object(as_tuple(*now)) : py::none();
}

py::dict tags() {
  const std::pair<const char*, Tag> named[] = {
      {"NONE", Tag::kNone},
      {"TRUE", Tag::kTrue},
      {"FALSE", Tag::kFalse},
      {"INT", Tag::kInt},
      {"BIG_INT", Tag::kBigInt},
      {"FLOAT", Tag::kFloat},
      {"COMPLEX", Tag::kComplex},
      {"NUMPY_SCALAR", Tag::kNumpyScalar},
      {"STRING", Tag::kString},
      {"BYTES", Tag::kBytes},
      {"IDENTITY", Tag::kIdentity},
      {"TUPLE", Tag::kTuple},
      {"LIST", Tag::kList},
      {"DEQUE", Tag::kDeque},
      {"DICT", Tag::kDict},
      {"SET", Tag::kSet},
      {"OBJECT", Tag::kObject},
      {"SLOTS", Tag::kSlots},
      {"MISSING", Tag::kMissing},
      {"TYPE", Tag::kType},
      {"CLASS", Tag::kClass},
      {"CLASS_ATTRIBUTES", Tag::kClassAttributes},
      {"ATTRIBUTES", Tag::kAttributes},
      {"WEAK_REF", Tag::kWeakRef},
      {"ORDER", Tag::kOrder},
      {"METHOD", Tag::kMethod},
      {"FUNCTION", Tag::kFunction},
      {"GLOBALS", Tag::kGlobals},
      {"PARTIAL", Tag::kPartial},
      {"DEVICE", Tag::kDevice},
      {"RANGE", Tag::kRange},
      {"REFERENCE", Tag::kReference},
      {"TENSOR", Tag::kTensor},
      {"SAME_TENSOR", Tag::kSameTensor},
      {"CALL", Tag::kCall},
      {"ENVIRONMENT", Tag::kEnvironment},
      {"STATE", Tag::kState},
      {"CLOSED_LIST", Tag::kClosedList},
  };
  py::dict found;
  for (const auto& [name, tag] : named) found[name] = static_cast<int>(tag);
  return found;
}

}  // namespace

void bind_report(py::module_& m) {
  m.def("nearest", &nearest, py::arg("scm"), py::arg("facts"));
  m.def("guards_of", &guards_of, py::arg("scm"), py::arg("record"));
  m.def("present_reads", &present_reads, py::arg("scm"), py::arg("record"));
  m.def("describe_tensor_header", &guards::describe_tensor_header);
  m.def("describe_device", &guards::describe_device);
  m.def("describe_environment",
        [](const Words& words) { return guards::describe_environment(words); });
  m.def("class_changes", [](py::handle type, uint64_t before, uint64_t now) {
    if (!PyType_Check(type.ptr())) throw py::type_error("expected a type");
    py::list changes;
    for (const guards::ClassChange& change :
         guards::class_changes(reinterpret_cast<PyTypeObject*>(type.ptr()), before, now)) {
      const auto value = [](const guards::Ref& object) -> py::object {
        return object ? py::object(py::make_tuple(borrowed(object.get()))) : py::none();
      };
      changes.append(py::make_tuple(change.name, value(change.before), value(change.now)));
    }
    return changes;
  });
  m.def("type_layout", [](py::handle type) {
    if (!PyType_Check(type.ptr())) throw py::type_error("expected a type");
    const guards::TypeInfo& info = guards::type_info(reinterpret_cast<PyTypeObject*>(type.ptr()));
    return py::make_tuple(info.exact, info.has_dict, info.slot_names);
  });
  m.attr("word_tags") = tags();
  m.attr("environment_words") = guards::kEnvironmentWords;
}

}  // namespace trident::python
