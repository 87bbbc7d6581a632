#include "python/specialization.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>

namespace trident::python {

using guards::KeptError;
using guards::PythonError;
using guards::Ref;

namespace {

// So many inputs are read in no more time than it takes to copy those of the last call.
constexpr size_t kFewInputs = 16;

class ReleaseInterpreter {
 public:
  ReleaseInterpreter() : saved_(PyEval_SaveThread()) {}
  ~ReleaseInterpreter() { PyEval_RestoreThread(saved_); }
  ReleaseInterpreter(const ReleaseInterpreter&) = delete;
  ReleaseInterpreter& operator=(const ReleaseInterpreter&) = delete;

 private:
  PyThreadState* saved_;
};

}  // namespace

void Specialization::read_inputs(const CallFacts& facts, std::vector<trident_tensor>& given,
                                 std::vector<int64_t>& symbols) {
  read_symbols(facts.words(), symbols);
  const auto given_by = [&](size_t input) {
    return host::wrap(input_tensor(facts, input).unsafeGetTensorImpl());
  };
  if (facts.state_version != 0 && facts.state_version == state_version_) {
    given = last_inputs_;
    for (const size_t input : arguments_) given[input] = given_by(input);
    return;
  }
  for (size_t input = 0; input < inputs.size(); ++input) given.push_back(given_by(input));
  for (const at::Tensor& constant : constants)
    given.push_back(host::wrap(constant.unsafeGetTensorImpl()));
  if (given.size() <= kFewInputs) return;
  last_inputs_ = given;
  arguments_.clear();
  for (size_t input = 0; input < inputs.size(); ++input) {
    if (facts.is_argument(inputs[input])) arguments_.push_back(input);
  }
  state_version_ = facts.state_version;
}

const at::Tensor& Specialization::input_tensor(const CallFacts& facts, size_t input) const {
  return THPVariable_Unpack(facts.tensor(inputs[input]));
}

void Specialization::cast_inputs(const CallFacts& facts,
                                 at::Tensor (AutocastInput::*cast)(const at::Tensor&) const,
                                 std::vector<trident_tensor>& given, HeldInputs& held) const {
  for (const AutocastInput& each : casts) {
    held.tensors.push_back((each.*cast)(input_tensor(facts, each.input)));
    given[each.input] = host::wrap(held.tensors.back().unsafeGetTensorImpl());
  }
}

void Specialization::hold_inputs(const CallFacts& facts, HeldInputs& held) const {
  // The first reference of an operator to a tensor that only Python holds takes the interpreter lock.
  const bool for_operators = program->calls_typed() + program->calls_boxed() != 0;
  for (const size_t index : inputs) {
    PyObject* tensor = facts.tensor(index);
    if (for_operators) {
      held.tensors.push_back(THPVariable_Unpack(tensor));
    } else {
      held.objects.push_back(Ref::borrow(tensor));
    }
  }
}

void Specialization::prepare(const CallFacts& facts) {
  std::vector<trident_tensor> given;
  std::vector<int64_t> symbols;
  HeldInputs held;
  read_inputs(facts, given, symbols);
  cast_inputs(facts, &AutocastInput::fresh, given, held);  // later calls are to make their own
  hold_inputs(facts, held);
  const ReleaseInterpreter release;
  program->prepare(given.data(), symbols.data());
}

bool Specialization::run_program(CallState& call, host::Unfinished& unfinished) {
  const auto run = [&] {
    return program->run(call.inputs.data(), call.symbols.data(), call.outputs, &unfinished) > 0;
  };
  if (!program->runs_kernels()) return run();
  hold_inputs(call.facts, call.held);
  const ReleaseInterpreter release;
  return run();
}

void Specialization::apply_stage(const CallState& call, const host::Unfinished& unfinished) const {
  if (unfinished.stage == 0) return;
  const Stage& stage = stages.at(unfinished.stage - 1);
  const auto containers = [&](const std::vector<size_t>& indices) {
    std::vector<Ref> found;
    for (const size_t index : indices) found.push_back(Ref::borrow(call.facts.container(index)));
    return found;
  };
  std::vector<Ref> tensors, built;
  for (const size_t index : stage.values.tensors_used())
    tensors.push_back(Ref::borrow(call.facts.tensor(index)));
  const std::vector<Ref> used = containers(stage.values.containers_used());
  const std::vector<int64_t> numbers = program->numbers(call.symbols.data());
  stage.values.build({tensors, used, unfinished.outputs, numbers}, built);
  stage.effects.apply(containers(stage.effects.containers_used()), built);
}

bool Specialization::replay_graph(CallState& call) {
  host::GraphTable::State* const state = graphs.find(call.symbols);
  if (!state || !state->replay) return false;
  const std::shared_ptr<host::GraphReplay> replay = state->replay;
  if (replay->matches(call.inputs.data(), call.facts.state_version, state->moved) &&
      replay->replay(call.inputs.data(), call.outputs)) {
    state->mismatches = 0;
    return true;
  }
  ++state->mismatches;
  return false;
}

Ref Specialization::run(CallState& call, bool& compiled) {
  const CallFacts& facts = call.facts;
  std::optional<c10::InferenceMode> mode;
  if (inference) [[unlikely]]
    mode.emplace();
  read_inputs(facts, call.inputs, call.symbols);
  cast_inputs(facts, &AutocastInput::cached, call.inputs, call.held);
  for (const size_t index : result.tensors_used())
    call.tensors.push_back(Ref::borrow(facts.tensor(index)));
  for (const size_t index : result.containers_used())
    call.containers.push_back(Ref::borrow(facts.container(index)));
  for (const size_t index : effects.containers_used())
    call.effect_containers.push_back(Ref::borrow(facts.container(index)));

  if (!replay_graph(call)) {
    host::Unfinished unfinished;
    try {
      compiled = run_program(call, unfinished) || compiled;
    } catch (...) {
      const KeptError error;
      try {
        apply_stage(call, unfinished);
      } catch (const PythonError&) {
        PyErr_WriteUnraisable(nullptr);  // the program's own error is the one to tell
      }
      throw;
    }
  }

  const std::vector<int64_t> numbers = program->numbers(call.symbols.data());
  result.build({call.tensors, call.containers, call.outputs, numbers}, call.built);
  effects.apply(call.effect_containers, call.built);
  return call.built.at(result_node);
}

Ref Specialization::input_objects(const CallFacts& facts) const {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) throw guards::PythonError();
  for (const size_t index : inputs) {
    if (PyList_Append(list.get(), facts.tensor(index)) < 0) throw guards::PythonError();
  }
  for (const AutocastInput& each : casts) {
    PyObject* const made = THPVariable_Wrap(each.cached(input_tensor(facts, each.input)));
    if (!made || PyList_SetItem(list.get(), static_cast<Py_ssize_t>(each.input), made) < 0)
      throw guards::PythonError();
  }
  for (const at::Tensor& constant : constants) {
    const Ref object = Ref::steal(THPVariable_Wrap(constant));
    if (!object || PyList_Append(list.get(), object.get()) < 0) throw guards::PythonError();
  }
  return list;
}

}  // namespace trident::python
