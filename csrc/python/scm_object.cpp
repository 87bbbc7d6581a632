#include "python/scm_object.h"

#include <pybind11/stl.h>

#include "guards/environment.h"
#include "guards/words.h"
#include "python/errors.h"

namespace trident::python {

using guards::PythonError;
using guards::Ref;
using guards::Tag;
using guards::tagged;
using guards::Walker;

namespace {

// Positional arguments as a tuple and keyword arguments as a dictionary, for the paths that leave
// native code.
struct PackedArguments {
  Ref positional;
  Ref keywords;

  PackedArguments(PyObject* const* arguments, size_t num_positional, PyObject* keyword_names) {
    positional = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(num_positional)));
    keywords = Ref::steal(PyDict_New());
    if (!positional || !keywords) throw PythonError();
    for (size_t i = 0; i < num_positional; ++i) {
      PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
    }
    const Py_ssize_t num_keywords = keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0;
    for (Py_ssize_t i = 0; i < num_keywords; ++i) {
      if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(keyword_names, i),
                         arguments[num_positional + static_cast<size_t>(i)]) < 0) {
        throw PythonError();
      }
    }
  }
};

}  // namespace

bool Module::collect(PyObject* const* arguments, size_t num_positional, PyObject* keyword_names,
                     CallFacts& facts, std::vector<uint32_t>* starts) {
  guards::Walk& walk = facts.arguments;
  walk.clear();
  facts.state = &state_.walk();
  if (const char* reason = guards::environment_unsupported()) {
    walk.unsupported = reason;
    return false;
  }
  const auto num_keywords =
      keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names)) : size_t{0};
  walk.words.push_back(tagged(Tag::kCall, num_positional << 24 | num_keywords));
  Walker walker(walk);
  if (starts) walker.record_scalars();
  for (size_t i = 0; i < num_keywords; ++i) {
    walker.visit(PyTuple_GET_ITEM(keyword_names, static_cast<Py_ssize_t>(i)));
  }
  for (size_t i = 0; i < num_positional + num_keywords; ++i) {
    if (starts) starts->push_back(static_cast<uint32_t>(walk.words.size()));
    if (!walker.visit(arguments[i])) return false;
  }
  guards::append_environment(walk.words);
  if (!state_.refresh()) {
    walk.unsupported = state_.unsupported();
    return false;
  }
  facts.state = &state_.walk();
  facts.state_word = walk.words.size();
  facts.state_version = state_.version();
  walk.words.push_back(tagged(Tag::kState, state_.id()));
  // An argument that is also a weight: code may ask `x is self.weight`.
  for (size_t i = 0; i < walk.tensors.size(); ++i) {
    const uint32_t position = facts.state->tensor_positions.find(walk.tensors[i]);
    if (position != guards::PointerMap::kAbsent) {
      walk.words.push_back(tagged(Tag::kSameTensor, i << 32 | position));
    }
  }
  // The same of objects: `cache is self.cache`.
  for (size_t i = 0; i < walk.containers.size(); ++i) {
    const uint32_t position = facts.state->container_positions.find(walk.containers[i]);
    if (position != guards::PointerMap::kAbsent) {
      walk.words.push_back(tagged(Tag::kReference, i << 32 | position));
    }
  }
  return true;
}

namespace {

// A call's words in which parts of the state are open: their values stand behind the state's word.
std::vector<uint64_t> with_open_state(const CallFacts& facts, const guards::State::Opened& state) {
  const std::vector<uint64_t>& words = facts.arguments.words;
  const auto place = words.begin() + static_cast<std::ptrdiff_t>(facts.state_word);
  std::vector<uint64_t> open(words.begin(), place);
  open.push_back(tagged(Tag::kOpenState, state.id));
  open.insert(open.end(), state.values.begin(), state.values.end());
  open.insert(open.end(), place + 1, words.end());
  return open;
}

}  // namespace

Specialization* Module::find(CallFacts& facts) {
  facts.open_words.clear();
  if (scm::Entry* entry = table_.find(facts.arguments.words)) [[likely]] {
    return static_cast<Specialization*>(entry);
  }
  // A copy: whether an entry accepts may run Python code, and so another call that walks the state.
  const std::vector<guards::State::Opened> opened = state_.opened();
  for (const guards::State::Opened& state : opened) {
    facts.open_words = with_open_state(facts, state);
    if (scm::Entry* entry = table_.find(facts.open_words)) {
      return static_cast<Specialization*>(entry);
    }
  }
  facts.open_words.clear();
  return nullptr;
}

Specialization* Module::look_up(PyObject* const* arguments, size_t num_positional,
                                PyObject* keyword_names, CallFacts& facts) {
  return collect(arguments, num_positional, keyword_names, facts) ? find(facts) : nullptr;
}

PyObject* Module::run(Specialization& specialization, CallState& call, PyObject* const* arguments,
                      size_t num_positional, PyObject* keyword_names, bool compiled_now) {
  const auto keep = specialization.shared_from_this();  // an eviction must not free it meanwhile
  if (!specialization.program) {
    PyObject* result = PyObject_Vectorcall(eager_.get(), arguments, num_positional, keyword_names);
    ++(result ? stats.fallbacks : stats.errors);
    ++specialization.hits;
    return result;
  }
  try {
    Ref result = specialization.run(call, compiled_now);
    ++(compiled_now ? stats.misses : stats.hits);
    specialization.hits += compiled_now ? 0 : 1;
    stats.launches += specialization.program->launches();
    stats.aten_typed += specialization.program->calls_typed();
    stats.aten_boxed += specialization.program->calls_boxed();
    return result.release();
  } catch (...) {
    ++stats.errors;
    throw;
  }
}

bool Module::wants_graph(Specialization& specialization, CallState& call) const {
  host::GraphTable& graphs = specialization.graphs;
  if (!capture_graph_ || graphs.given_up() || !specialization.program ||
      !specialization.program->device().is_cuda()) {
    return false;
  }
  specialization.read_symbols(call.facts.words(), call.symbols);
  return graphs.wants_capture(graphs.of(call.symbols), graph_after_hits_);
}

void Module::capture_graph(Specialization& specialization, const CallState& call) {
  const auto keep = specialization.shared_from_this();
  const std::vector<int64_t> symbols = call.symbols;
  host::GraphTable& graphs = specialization.graphs;
  host::GraphTable::State* state = &graphs.of(symbols);
  const std::set<size_t> moved = state->moved;
  state->tried = true;
  state->mismatches = 0;
  const Ref inputs = specialization.input_objects(call.facts);
  const pybind11::object replay =
      pybind11::reinterpret_borrow<pybind11::object>(capture_graph_.get())(
          specialization.program,
          pybind11::reinterpret_borrow<pybind11::object>(specialization.info.get()),
          pybind11::reinterpret_borrow<pybind11::object>(inputs.get()), symbols, moved);
  state = &graphs.of(symbols);                       // the interpreter may have run other calls
  state->tried = replay.ptr() != Py_NotImplemented;  // else a later call may be captured
  if (!state->tried) return;
  graphs.count_capture();
  if (replay.is_none()) {
    graphs.give_up();
  } else {
    state->replay = replay.cast<std::shared_ptr<host::GraphReplay>>();
  }
}

PyObject* Module::call(PyObject* const* arguments, size_t num_positional, PyObject* keyword_names) {
  return translated_or_null([&]() -> PyObject* {
    ++stats.calls;
    const CallStates::Lease lease(call_states_);
    CallState& call = *lease;
    Specialization* specialization = look_up(arguments, num_positional, keyword_names, call.facts);
    if (specialization && wants_graph(*specialization, call)) [[unlikely]] {
      try {
        capture_graph(*specialization, call);
        // Other Python code ran meanwhile, so what the facts borrow may be gone.
        specialization = look_up(arguments, num_positional, keyword_names, call.facts);
      } catch (...) {
        ++stats.errors;
        throw;
      }
    }
    if (specialization) {
      return run(*specialization, call, arguments, num_positional, keyword_names, false);
    }
    const PackedArguments packed(arguments, num_positional, keyword_names);
    return PyObject_CallFunctionObjArgs(miss_.get(), packed.positional.get(), packed.keywords.get(),
                                        nullptr);
  });
}

std::shared_ptr<scm::Entry> Module::publish(const CallFacts& facts,
                                            std::shared_ptr<Specialization> specialization,
                                            std::vector<uint32_t> symbolic,
                                            const std::vector<uint32_t>& symbolic_state) {
  for (PyObject* identity : facts.arguments.identities) {
    specialization->identities.push_back(Ref::borrow(identity));
  }
  std::vector<uint64_t> words = facts.arguments.words;
  specialization->words = words;
  if (symbolic_state.empty()) {
    const guards::State::Interned state = state_.intern(*facts.state);
    specialization->state_words = state.words;
    words[facts.state_word] = tagged(Tag::kState, state.id);
  } else {
    const guards::State::Interned interned = state_.intern_open(*facts.state, symbolic_state);
    specialization->state_words = interned.words;
    guards::State::Opened state{interned.id, {}};
    for (const uint32_t position : symbolic_state) {
      state.values.push_back(facts.state->words[position]);
      symbolic.push_back(static_cast<uint32_t>(facts.state_word + state.values.size()));
    }
    words = with_open_state(facts, state);
  }
  // A program may have no use for what is left open.
  if (specialization->program && specialization->program->num_symbols() > 0) {
    specialization->symbolic = symbolic;
  }
  const scm::Mask mask{words.size(), std::move(symbolic)};
  std::shared_ptr<scm::Entry> evicted = table_.insert(words, mask, std::move(specialization));
  if (evicted && evicted->compiled()) ++stats.evictions;
  return evicted;
}

int Module::traverse(visitproc visit, void* arg) {
  Py_VISIT(miss_.get());
  Py_VISIT(eager_.get());
  Py_VISIT(capture_graph_.get());
  if (const int status = state_.traverse(visit, arg)) return status;
  for (const auto& entry : table_.entries()) {
    const auto& specialization = static_cast<const Specialization&>(*entry);
    Py_VISIT(specialization.info.get());
    for (const Ref& identity : specialization.identities) Py_VISIT(identity.get());
    if (const int status = specialization.reads.traverse(visit, arg)) return status;
    if (const int status = specialization.result.traverse(visit, arg)) return status;
    if (const int status = specialization.effects.traverse(visit, arg)) return status;
    for (const Specialization::Stage& stage : specialization.stages) {
      if (const int status = stage.values.traverse(visit, arg)) return status;
      if (const int status = stage.effects.traverse(visit, arg)) return status;
    }
  }
  return 0;
}

void Module::clear() {
  table_.clear();
  state_.clear();
  miss_ = Ref();
  eager_ = Ref();
  capture_graph_ = Ref();
}

}  // namespace trident::python
