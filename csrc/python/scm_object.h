// The Specialization Cache Module as a Python object: the callable that a call enters once.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "abi/profiled.h"
#include "guards/state.h"
#include "python/call_state.h"
#include "python/specialization.h"
#include "scm/guard_table.h"

namespace trident::python {

// Every call has one outcome: hit, miss (compiled, then run), fallback (ran eagerly) or error.
struct Stats {
  uint64_t calls = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t fallbacks = 0;
  uint64_t errors = 0;
  uint64_t evictions = 0;
  uint64_t launches = 0;
  uint64_t aten_typed = 0;
  uint64_t aten_boxed = 0;
};

// One optimized callable's native side.
class Module {
 public:
  Module(PyObject* miss, PyObject* eager, size_t max_specializations)
      : miss_(guards::Ref::borrow(miss)),
        eager_(guards::Ref::borrow(eager)),
        table_(max_specializations) {}

  // The whole call: facts, look-up, run; the miss handler where nothing matches.
  TRIDENT_PROFILED PyObject* call(PyObject* const* arguments, size_t num_positional,
                                  PyObject* keyword_names);

  // Fills `facts`. False where the call cannot be described; facts.arguments.unsupported says why.
  // `starts`, where given, receives the position of each argument's first word.
  bool collect(PyObject* const* arguments, size_t num_positional, PyObject* keyword_names,
               CallFacts& facts, std::vector<uint32_t>* starts = nullptr);

  // The specialization for these facts, or nullptr.
  Specialization* find(CallFacts& facts);
  // Runs a specialization and counts the outcome, a miss if this call had to compile it first. A new
  // reference, or nullptr with an exception set.
  PyObject* run(Specialization& specialization, CallState& call, PyObject* const* arguments,
                size_t num_positional, PyObject* keyword_names, bool compiled_now);

  // Publishes under a mask that leaves words open: those of the call at `symbolic`, and those of its
  // state at `symbolic_state`, both ascending.
  std::shared_ptr<scm::Entry> publish(const CallFacts& facts,
                                      std::shared_ptr<Specialization> specialization,
                                      std::vector<uint32_t> symbolic,
                                      const std::vector<uint32_t>& symbolic_state);

  // Graph mode: a specialization with this many hits for the same sizes is handed to `capture`, a
  // callable that takes the program, its record, its input tensors, the values of its symbols and
  // the set of inputs that keep moving, and returns a GraphReplay or None.
  void use_graphs(PyObject* capture, uint64_t after_hits) {
    capture_graph_ = guards::Ref::borrow(capture);
    graph_after_hits_ = after_hits;
  }

  Stats stats;
  CallStates& call_states() { return call_states_; }
  guards::State& state() { return state_; }
  scm::GuardTable& table() { return table_; }

  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  guards::Ref miss_;   // (args, kwargs) -> result
  guards::Ref eager_;  // the original callable
  Specialization* look_up(PyObject* const* arguments, size_t num_positional,
                          PyObject* keyword_names, CallFacts& facts);
  bool wants_graph(Specialization& specialization, CallState& call) const;
  // Runs Python code.
  void capture_graph(Specialization& specialization, const CallState& call);

  guards::Ref capture_graph_;
  uint64_t graph_after_hits_ = 0;
  CallStates call_states_;
  guards::State state_;
  scm::GuardTable table_;
};

// The native side of a `trident._C.Scm`. Raises TypeError for any other object.
Module& module_of(pybind11::handle scm);

}  // namespace trident::python
