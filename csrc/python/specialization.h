// A published specialization: guards beyond the key, the host program, and how to build its result.
#pragma once

#include <memory>
#include <vector>

#include "guards/state.h"
#include "host/graph_replay.h"
#include "host/program.h"
#include "python/template.h"
#include "scm/guard_table.h"

namespace trident::python {

// The facts of one call. Tensors and containers of the arguments come first, then the state's.
struct CallFacts {
  guards::Walk arguments;  // words: call shape, arguments, environment, state id
  const guards::Walk* state = nullptr;
  size_t state_word = 0;  // position of the word that names the state
  // The words by which a specialization was found that leaves parts of the state open; else empty.
  std::vector<uint64_t> open_words;

  scm::Words words() const { return open_words.empty() ? arguments.words : open_words; }

  size_t num_tensors() const { return arguments.tensors.size() + state->tensors.size(); }
  PyObject* tensor(size_t index) const {
    const size_t count = arguments.tensors.size();
    return index < count ? arguments.tensors[index] : state->tensors.at(index - count);
  }
  size_t num_containers() const { return arguments.containers.size() + state->containers.size(); }
  PyObject* container(size_t index) const {
    const size_t count = arguments.containers.size();
    return index < count ? arguments.containers[index] : state->containers.at(index - count);
  }
};

class Specialization : public scm::Entry {
 public:
  // Without a program the entry stands for a call that is known to be unsupported.
  std::shared_ptr<host::Program> program;
  // Positions of the words that the program takes as symbols, ascending; empty where every size is
  // fixed.
  std::vector<uint32_t> symbolic;
  std::vector<size_t> inputs;         // the program's inputs, as indexes of the call's tensors
  std::vector<at::Tensor> constants;  // further inputs
  Template result;
  size_t result_node = 0;
  Effects effects;
  guards::Reads reads;
  // The facts of the call it was made from, for reports, and the positions of those that are left
  // open: words of the state are counted behind those of the call.
  std::vector<uint32_t> open;
  std::vector<uint64_t> words;
  std::shared_ptr<const std::vector<uint64_t>> state_words;
  guards::Ref info;  // the Python record that describes it
  // Graph mode, driven by the module that owns the specialization; only where no size varies.
  std::shared_ptr<host::GraphReplay> graph;
  bool graph_tried = false;
  uint32_t graph_captures = 0;
  uint32_t graph_mismatches = 0;        // calls in a row that the graph could not serve
  std::vector<guards::Ref> identities;  // keeps the addresses in the key's words meaningful

  bool accepts(scm::Words words) override {
    if (!symbolic.empty() && !program->guard(symbols(words).data())) return false;
    return reads.unchanged();
  }
  // A size that was never met again needs no specialization of its own beside one for all sizes.
  bool replaceable() const override { return program != nullptr && hits == 0; }

  // Runs the host program on this call's tensors and returns the call's result. The interpreter
  // lock is held on entry and return, and released while the program runs. Sets `compiled` if a
  // kernel variant had to be compiled first.
  guards::Ref run(const CallFacts& facts, bool& compiled);

  // Compiles the kernel variants that this call needs.
  void prepare(const CallFacts& facts);

  // The program's inputs in this call, as Python objects: a new list.
  guards::Ref input_objects(const CallFacts& facts) const;

 private:
  // The program's inputs in one call. Strong references: while the interpreter lock is released
  // another thread may replace a weight.
  struct Inputs {
    Inputs(const Specialization& specialization, const CallFacts& facts);
    std::vector<at::Tensor> held;
    std::vector<trident_tensor> raw;
  };

  std::vector<int64_t> symbols(scm::Words words) const {
    std::vector<int64_t> values;
    values.reserve(symbolic.size());
    for (const uint32_t position : symbolic) {
      values.push_back(static_cast<int64_t>(words[position]));
    }
    return values;
  }
};

}  // namespace trident::python
