// A published specialization: guards beyond the key, the host program, and how to build its result.
#pragma once

#include <memory>
#include <vector>

#include "guards/state.h"
#include "host/graph_table.h"
#include "host/program.h"
#include "python/autocast_input.h"
#include "python/call_state.h"
#include "python/template.h"
#include "scm/guard_table.h"

namespace trident::python {

class Specialization : public scm::Entry {
 public:
  // Without a program the entry stands for a call that is known to be unsupported.
  std::shared_ptr<host::Program> program;
  // Positions of the words that the program takes as symbols, ascending; empty where every size is
  // fixed.
  std::vector<uint32_t> symbolic;
  std::vector<size_t> inputs;         // the program's inputs, as indexes of the call's tensors
  std::vector<AutocastInput> casts;   // those of which the program takes autocast's cast
  std::vector<at::Tensor> constants;  // further inputs
  Template result;
  size_t result_node = 0;
  bool inference = false;  // runs in inference mode, whatever the caller's is
  Effects effects;
  // What the call's code had changed before an operator that may raise, by the program's stage from
  // 1 on.
  struct Stage {
    Template values;
    Effects effects;
  };
  std::vector<Stage> stages;
  guards::Reads reads;
  // The facts of the call it was made from, for reports, and the positions of those that are left
  // open: words of the state are counted behind those of the call.
  std::vector<uint32_t> open;
  std::vector<uint64_t> words;
  std::shared_ptr<const std::vector<uint64_t>> state_words;
  guards::Ref info;                     // the Python record that describes it
  host::GraphTable graphs;              // filled by the module that owns the specialization
  std::vector<guards::Ref> identities;  // keeps the addresses in the key's words meaningful

  bool accepts(scm::Words words) override {
    if (!symbolic.empty()) {
      read_symbols(words, guarded_);
      if (!program->guard(guarded_.data())) return false;
    }
    return reads.unchanged();
  }
  // A size that was never met again needs no specialization of its own beside one for all sizes.
  bool replaceable() const override { return program != nullptr && hits == 0; }
  bool compiled() const override { return program != nullptr; }

  // Runs the host program on this call's tensors and returns the call's result. The interpreter
  // lock is held on entry and return. It is released while a program runs kernels, which can block;
  // a graph is launched with the lock held, which takes less time than letting go of it for safety
  // would. Sets `compiled` if a kernel variant had to be compiled first.
  guards::Ref run(CallState& call, bool& compiled);

  // Compiles the kernel variants that this call needs.
  void prepare(const CallFacts& facts);

  // The values of the program's symbols in this call.
  void read_symbols(scm::Words words, std::vector<int64_t>& values) const {
    values.clear();
    for (const uint32_t position : symbolic) {
      values.push_back(static_cast<int64_t>(words[position]));
    }
  }

  // The program's inputs in this call, as Python objects: a new list.
  guards::Ref input_objects(const CallFacts& facts) const;

 private:
  // The program's inputs, borrowed, and the values of its symbols.
  void read_inputs(const CallFacts& facts, std::vector<trident_tensor>& given,
                   std::vector<int64_t>& symbols);
  // The tensor that an input is, or is a cast of.
  const at::Tensor& input_tensor(const CallFacts& facts, size_t input) const;
  // Puts casts in the place of the inputs they are made of, and keeps them in `held`.
  void cast_inputs(const CallFacts& facts,
                   at::Tensor (AutocastInput::*cast)(const at::Tensor&) const,
                   std::vector<trident_tensor>& given, HeldInputs& held) const;
  // References to the call's inputs: while the interpreter lock is released another thread may
  // replace a weight.
  void hold_inputs(const CallFacts& facts, HeldInputs& held) const;
  // Whether a kernel variant had to be compiled.
  bool run_program(CallState& call, host::Unfinished& unfinished);
  bool replay_graph(CallState& call);  // whether a graph served the call
  // Makes the changes that the call's code had made before the operator that raised.
  void apply_stage(const CallState& call, const host::Unfinished& unfinished) const;

  // The inputs of the last call, and which of them were arguments; what is in between is the state's,
  // and stays while the version of that does.
  std::vector<trident_tensor> last_inputs_;
  std::vector<size_t> arguments_;
  uint64_t state_version_ = 0;

  std::vector<int64_t> guarded_;  // only lives within accepts(), which the interpreter lock covers
};

}  // namespace trident::python
