// The SCM's Python types: `Scm`, the callable itself, and `ModuleEntry`, the same callable as the
// `__call__` of a module's class. Both are entered by vectorcall, so a hit builds no tuple.
#include "python/bindings.h"

#include <pybind11/stl.h>
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <new>
#include <vector>

#include "guards/recorder.h"
#include "guards/type_info.h"
#include "guards/walker.h"
#include "guards/words.h"
#include "python/errors.h"
#include "python/scm_object.h"

namespace py = pybind11;

namespace trident::python {
namespace {

struct ScmObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  Module* module;
};

struct EntryObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* scm;
};

PyTypeObject* scm_type = nullptr;
PyTypeObject* entry_type = nullptr;

PyObject* scm_vectorcall(PyObject* self, PyObject* const* arguments, size_t flags,
                         PyObject* keyword_names) {
  return reinterpret_cast<ScmObject*>(self)->module->call(
      arguments, static_cast<size_t>(PyVectorcall_NARGS(flags)), keyword_names);
}

// The first argument is the module the class's __call__ was looked up on.
PyObject* entry_vectorcall(PyObject* self, PyObject* const* arguments, size_t flags,
                           PyObject* keyword_names) {
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  PyObject* scm = reinterpret_cast<EntryObject*>(self)->scm;
  if (count == 0 || !scm) {
    PyErr_SetString(PyExc_TypeError, "an optimized module's __call__ needs the module");
    return nullptr;
  }
  return reinterpret_cast<ScmObject*>(scm)->module->call(arguments + 1, count - 1, keyword_names);
}

PyObject* scm_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"miss", "eager", "max_specializations", nullptr};
  PyObject *miss, *eager;
  Py_ssize_t capacity;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOn", const_cast<char**>(names), &miss, &eager,
                                   &capacity)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<ScmObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = scm_vectorcall;
  self->module = new Module(miss, eager, static_cast<size_t>(capacity));
  return reinterpret_cast<PyObject*>(self);
}

int scm_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  auto* module = reinterpret_cast<ScmObject*>(self)->module;
  return module ? module->traverse(visit, arg) : 0;
}

int scm_clear(PyObject* self) {
  if (auto* module = reinterpret_cast<ScmObject*>(self)->module) module->clear();
  return 0;
}

void scm_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<ScmObject*>(self)->module;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* scm;
  if (!PyArg_ParseTuple(args, "O!", scm_type, &scm)) return nullptr;
  auto* self = reinterpret_cast<EntryObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = entry_vectorcall;
  self->scm = Py_NewRef(scm);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* entry_get(PyObject* self, PyObject* object, PyObject*) {
  return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

int entry_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<EntryObject*>(self)->scm);
  return 0;
}

int entry_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<EntryObject*>(self)->scm);
  return 0;
}

void entry_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  entry_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename Object>
PyTypeObject* make_type(const char* name, unsigned long flags, newfunc create,
                        traverseproc traverse, inquiry clear, destructor dealloc,
                        descrgetfunc get) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  std::vector<PyType_Slot> slots = {
      {Py_tp_new, reinterpret_cast<void*>(create)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_members, members},
  };
  if (get) slots.push_back({Py_tp_descr_get, reinterpret_cast<void*>(get)});
  slots.push_back({0, nullptr});
  PyType_Spec spec{name, sizeof(Object), 0,
                   static_cast<unsigned int>(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                             Py_TPFLAGS_HAVE_VECTORCALL | flags),
                   slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw py::error_already_set();
  return reinterpret_cast<PyTypeObject*>(type);
}

Module& module_of(py::handle scm) {
  if (!PyObject_TypeCheck(scm.ptr(), scm_type)) throw py::type_error("expected an Scm");
  return *reinterpret_cast<ScmObject*>(scm.ptr())->module;
}

// A call's arguments in vectorcall form.
struct Call {
  std::vector<PyObject*> arguments;
  size_t num_positional;
  py::tuple names;

  Call(const py::tuple& positional, const py::dict& keywords) : num_positional(positional.size()) {
    py::list keys;
    for (const py::handle value : positional) arguments.push_back(value.ptr());
    for (const auto& [key, value] : keywords) {
      keys.append(key);
      arguments.push_back(value.ptr());
    }
    names = py::tuple(keys);
  }
  PyObject* keyword_names() const { return names.empty() ? nullptr : names.ptr(); }
};

// The facts of one call, kept for a compilation: owns what the walks only borrow.
struct Facts {
  CallFacts facts;
  std::vector<uint32_t> starts;  // of each argument's words
  guards::Walk state;
  py::tuple positional;
  py::dict keywords;
  std::vector<guards::Ref> kept;
};

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

py::object publish(py::handle scm, const Facts& facts, std::shared_ptr<host::Program> program,
                   std::vector<size_t> inputs, const py::list& constants, py::object nodes,
                   size_t result_node, py::object effects, const py::list& reads, py::object info,
                   std::vector<uint32_t> symbolic) {
  auto specialization = std::make_shared<Specialization>();
  if (symbolic.size() != (program ? program->num_symbols() : 0)) {
    throw py::value_error("the program takes another number of symbols");
  }
  for (size_t i = 0; i < symbolic.size(); ++i) {
    if (symbolic[i] >= facts.facts.arguments.words.size() ||
        (i > 0 && symbolic[i] <= symbolic[i - 1])) {
      throw py::index_error("symbolic words are ascending positions among the call's words");
    }
  }
  specialization->program = std::move(program);
  specialization->symbolic = std::move(symbolic);
  for (const size_t index : inputs) {
    if (index >= facts.facts.num_tensors()) throw py::index_error("no such tensor in this call");
  }
  specialization->inputs = std::move(inputs);
  for (const py::handle constant : constants) {
    if (!THPVariable_Check(constant.ptr())) throw py::type_error("constants must be tensors");
    specialization->constants.push_back(THPVariable_Unpack(constant.ptr()));
  }
  specialization->result = Template::parse(nodes.ptr());
  specialization->result_node = result_node;
  if (specialization->program && result_node >= specialization->result.size()) {
    throw py::index_error("no such template node");
  }
  specialization->effects = Effects::parse(effects.ptr());
  for (const py::handle read : reads) {
    const auto triple = py::reinterpret_borrow<py::tuple>(read);
    const py::object source = triple[0], name = triple[1];
    const bool deep = py::cast<bool>(triple[2]);
    if (PyType_Check(source.ptr())) {
      specialization->reads.add_type(reinterpret_cast<PyTypeObject*>(source.ptr()));
    } else if (name.is_none()) {
      specialization->reads.add_cell(source.ptr(), deep);
    } else {
      specialization->reads.add_global(source.ptr(), name.ptr(), deep);
    }
  }
  const std::string problem = translated([&] { return specialization->reads.record(); });
  if (!problem.empty()) throw py::value_error("the call reads a global that is " + problem);
  specialization->info = guards::Ref::borrow(info.ptr());
  const auto evicted = module_of(scm).publish(facts.facts, std::move(specialization));
  if (!evicted) return py::none();
  return py::reinterpret_borrow<py::object>(
      static_cast<const Specialization*>(evicted.get())->info.get());
}

}  // namespace

void bind_scm(py::module_& m) {
  scm_type = make_type<ScmObject>("trident._C.Scm", 0, scm_new, scm_traverse, scm_clear,
                                  scm_dealloc, nullptr);
  entry_type =
      make_type<EntryObject>("trident._C.ModuleEntry", Py_TPFLAGS_METHOD_DESCRIPTOR, entry_new,
                             entry_traverse, entry_clear, entry_dealloc, entry_get);
  m.attr("Scm") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(scm_type));
  m.attr("ModuleEntry") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(entry_type));

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
      .def_property_readonly("soft_words", &soft_words)
      .def_property_readonly("words", [](const Facts& self) { return self.facts.arguments.words; })
      .def_property_readonly("state_words", [](const Facts& self) { return self.state.words; });

  m.def("collect", &collect, py::arg("scm"), py::arg("args"), py::arg("kwargs"));
  m.def("publish", &publish, py::arg("scm"), py::arg("facts"), py::arg("program").none(true),
        py::arg("inputs"), py::arg("constants"), py::arg("nodes"), py::arg("result_node"),
        py::arg("effects"), py::arg("reads"), py::arg("info"),
        py::arg("symbolic") = std::vector<uint32_t>());
  m.def(
      "find",
      [](py::handle scm, const Facts& facts) -> py::object {
        const Specialization* found = module_of(scm).find(facts.facts);
        if (!found) return py::none();
        return py::reinterpret_borrow<py::object>(found->info.get());
      },
      "The record of the specialization that serves these facts, or None.");
  m.def(
      "run",
      [](py::handle scm, const py::tuple& args, const py::dict& kwargs,
         bool compiled_now) -> py::object {
        Module& module = module_of(scm);
        const Call call(args, kwargs);
        bool found = false;
        PyObject* result = translated([&]() -> PyObject* {
          CallFacts facts;
          if (!module.collect(call.arguments.data(), call.num_positional, call.keyword_names(),
                              facts)) {
            return nullptr;
          }
          Specialization* specialization = module.find(facts);
          if (!specialization) return nullptr;
          found = true;
          return module.run(*specialization, facts, call.arguments.data(), call.num_positional,
                            call.keyword_names(), compiled_now);
        });
        if (!result && PyErr_Occurred()) throw py::error_already_set();
        return py::make_tuple(found,
                              found ? py::reinterpret_steal<py::object>(result) : py::none());
      },
      py::arg("scm"), py::arg("args"), py::arg("kwargs"), py::arg("compiled_now"),
      "Look up and run without going to the miss handler: (found, result). The call counts as a "
      "miss "
      "where `compiled_now`, else as a hit.");
  m.def("add_root",
        [](py::handle scm, py::handle root) { module_of(scm).state().add_root(root.ptr()); });
  m.def(
      "use_graphs",
      [](py::handle scm, py::handle capture, uint64_t after_hits) {
        module_of(scm).use_graphs(capture.ptr(), after_hits);
      },
      py::arg("scm"), py::arg("capture"), py::arg("after_hits"));
  m.def("count", [](py::handle scm, const std::string& outcome) {
    Stats& stats = module_of(scm).stats;
    if (outcome == "fallback") {
      ++stats.fallbacks;
    } else if (outcome == "error") {
      ++stats.errors;
    } else {
      throw py::value_error("no such outcome: " + outcome);
    }
  });
  m.def("stats", [](py::handle scm) {
    Module& module = module_of(scm);
    const Stats& stats = module.stats;
    py::dict result;
    result["calls"] = stats.calls;
    result["hits"] = stats.hits;
    result["misses"] = stats.misses;
    result["fallbacks"] = stats.fallbacks;
    result["errors"] = stats.errors;
    result["evictions"] = stats.evictions;
    result["launches"] = stats.launches;
    result["aten_typed"] = stats.aten_typed;
    result["aten_boxed"] = stats.aten_boxed;
    return result;
  });
  m.def("entries", [](py::handle scm) {
    py::list list;
    for (const auto& entry : module_of(scm).table().entries()) {
      const auto& specialization = static_cast<const Specialization&>(*entry);
      list.append(py::make_tuple(py::reinterpret_borrow<py::object>(specialization.info.get()),
                                 specialization.hits, specialization.program != nullptr));
    }
    return list;
  });
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
  m.def("set_library_predicate",
        [](py::handle predicate) { guards::set_library_predicate(predicate.ptr()); });
}

}  // namespace trident::python
