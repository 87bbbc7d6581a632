// The SCM as functions over it: publishing specializations, look-up, counters.
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <tuple>
#include <vector>

#include "python/bindings.h"
#include "python/call_facts.h"
#include "python/errors.h"
#include "python/scm_object.h"

namespace py = pybind11;

namespace trident::python {
namespace {

py::object publish(py::handle scm, const Facts& facts, std::shared_ptr<host::Program> program,
                   std::vector<size_t> inputs, const py::list& constants, py::object nodes,
                   size_t result_node, py::object effects, RecordedReads& reads, py::object info,
                   std::vector<uint32_t> symbolic, bool inference,
                   const std::vector<std::pair<py::object, py::object>>& stages,
                   const std::vector<std::tuple<size_t, py::object, bool>>& casts) {
  auto specialization = std::make_shared<Specialization>();
  if (program && program->num_symbols() != 0 && symbolic.size() != program->num_symbols()) {
    throw py::value_error("the program takes another number of symbols");
  }
  // Words of the call first, then those of its state.
  const size_t num_words = facts.facts.arguments.words.size();
  std::vector<uint32_t> symbolic_state;
  for (size_t i = 0; i < symbolic.size(); ++i) {
    if (symbolic[i] >= num_words + facts.state.words.size() ||
        (i > 0 && symbolic[i] <= symbolic[i - 1])) {
      throw py::index_error("symbolic words are ascending positions among the call's words");
    }
    if (symbolic[i] < num_words && symbolic[i] >= facts.facts.state_word) {
      throw py::index_error("only words of arguments and of the state can be symbolic");
    }
    if (symbolic[i] >= num_words) {
      symbolic_state.push_back(symbolic[i] - static_cast<uint32_t>(num_words));
    }
  }
  specialization->open = symbolic;
  symbolic.resize(symbolic.size() - symbolic_state.size());
  specialization->program = std::move(program);
  if (const auto& made = specialization->program)
    specialization->graphs.fit(made->launches() + made->calls_typed() + made->calls_boxed());
  for (const size_t index : inputs) {
    if (index >= facts.facts.num_tensors()) throw py::index_error("no such tensor in this call");
  }
  specialization->inputs = std::move(inputs);
  for (const auto& [input, dtype, grad] : casts) {
    if (input >= specialization->inputs.size()) throw py::index_error("no such input");
    if (!THPDtype_Check(dtype.ptr())) throw py::type_error("a cast is to a dtype");
    const auto type = reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
    specialization->casts.push_back({input, type, grad});
  }
  for (const py::handle constant : constants) {
    if (!THPVariable_Check(constant.ptr())) throw py::type_error("constants must be tensors");
    specialization->constants.push_back(THPVariable_Unpack(constant.ptr()));
  }
  specialization->result = Template::parse(nodes.ptr());
  specialization->result_node = result_node;
  if (specialization->program && result_node >= specialization->result.size()) {
    throw py::index_error("no such template node");
  }
  specialization->inference = inference;
  specialization->effects = Effects::parse(effects.ptr());
  for (const auto& [values, changes] : stages) {
    specialization->stages.push_back(
        {Template::parse(values.ptr()), Effects::parse(changes.ptr())});
  }
  specialization->reads = std::move(reads.reads);
  specialization->info = guards::Ref::borrow(info.ptr());
  const auto evicted = module_of(scm).publish(facts.facts, std::move(specialization),
                                              std::move(symbolic), symbolic_state);
  if (!evicted) return py::none();
  return py::reinterpret_borrow<py::object>(
      static_cast<const Specialization*>(evicted.get())->info.get());
}

}  // namespace

void bind_scm(py::module_& m) {
  m.def("publish", &publish, py::arg("scm"), py::arg("facts"), py::arg("program").none(true),
        py::arg("inputs"), py::arg("constants"), py::arg("nodes"), py::arg("result_node"),
        py::arg("effects"), py::arg("reads"), py::arg("info"),
        py::arg("symbolic") = std::vector<uint32_t>(), py::arg("inference") = false,
        py::arg("stages") = py::list(), py::arg("casts") = py::list());
  m.def(
      "find",
      [](py::handle scm, Facts& facts) -> py::object {
        const Specialization* found = module_of(scm).find(facts.facts);
        if (!found) return py::none();
        return py::reinterpret_borrow<py::object>(found->info.get());
      },
      "The record of the specialization that serves these facts, or None.");
  m.def(
      "close_list",
      [](py::handle scm, const py::list& list, bool closed) {
        module_of(scm).state().close_list(list.ptr(), closed);
      },
      py::arg("scm"), py::arg("list"), py::arg("closed"),
      "Leaves the contents of a list out of the state, or takes them in again.");
  m.def(
      "prepare",
      [](py::handle scm, Facts& facts) {
        Specialization* specialization = module_of(scm).find(facts.facts);
        if (!specialization) return false;
        const auto keep = specialization->shared_from_this();
        if (specialization->program) translated([&] { specialization->prepare(facts.facts); });
        return true;
      },
      "Whether a specialization serves these facts; compiles the kernel variants it needs for "
      "them.");
  m.def(
      "run",
      [](py::handle scm, const py::tuple& args, const py::dict& kwargs,
         bool compiled_now) -> py::object {
        Module& module = module_of(scm);
        const Call call(args, kwargs);
        bool found = false;
        PyObject* result = translated([&]() -> PyObject* {
          const CallStates::Lease lease(module.call_states());
          CallState& state = *lease;
          if (!module.collect(call.arguments.data(), call.num_positional, call.keyword_names(),
                              state.facts)) {
            return nullptr;
          }
          Specialization* specialization = module.find(state.facts);
          if (!specialization) return nullptr;
          found = true;
          return module.run(*specialization, state, call.arguments.data(), call.num_positional,
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
    if (outcome == "miss") {
      ++stats.misses;
    } else if (outcome == "fallback") {
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
}

}  // namespace trident::python
