// What one call needs while it runs, kept between calls so that a hit allocates nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "abi/abi.h"
#include "guards/python.h"
#include "guards/walker.h"
#include "host/tensor.h"
#include "scm/guard_table.h"

namespace trident::python {

// The facts of one call. Tensors and containers of the arguments come first, then the state's.
struct CallFacts {
  guards::Walk arguments;  // words: call shape, arguments, environment, state id
  const guards::Walk* state = nullptr;
  size_t state_word = 0;       // position of the word that names the state
  uint64_t state_version = 0;  // of its tensors; 0 where it is not known
  // The words by which a specialization was found that leaves parts of the state open; else empty.
  std::vector<uint64_t> open_words;

  scm::Words words() const { return open_words.empty() ? arguments.words : open_words; }

  size_t num_tensors() const { return arguments.tensors.size() + state->tensors.size(); }
  PyObject* tensor(size_t index) const {
    const size_t count = arguments.tensors.size();
    return index < count ? arguments.tensors[index] : state->tensors.at(index - count);
  }
  bool is_argument(size_t tensor) const { return tensor < arguments.tensors.size(); }
  size_t num_containers() const { return arguments.containers.size() + state->containers.size(); }
  PyObject* container(size_t index) const {
    const size_t count = arguments.containers.size();
    return index < count ? arguments.containers[index] : state->containers.at(index - count);
  }
};

// What keeps a program's inputs alive: tensors, or where no operator asks for them the Python objects,
// which costs far less. Those a thread can give other tensors meanwhile (torch.utils.swap_tensors), as it
// can those that an eager launch reads.
struct HeldInputs {
  std::vector<at::Tensor> tensors;
  std::vector<guards::Ref> objects;

  void clear() {
    tensors.clear();
    objects.clear();
  }
};

struct CallState {
  CallFacts facts;
  HeldInputs held;                             // inputs, while other threads may run
  std::vector<trident_tensor> inputs;          // the program's, borrowed
  std::vector<int64_t> symbols;                // values of the symbolic words
  std::vector<guards::Ref> tensors;            // that the result uses
  std::vector<guards::Ref> containers;         // that the result uses
  std::vector<guards::Ref> effect_containers;  // that effects change
  std::vector<host::TensorRef> outputs;        // of the program
  std::vector<guards::Ref> built;              // nodes of the result

  void clear() {
    facts.arguments.clear();
    facts.state = nullptr;
    facts.state_version = 0;
    facts.open_words.clear();
    held.clear();
    inputs.clear();
    symbols.clear();
    tensors.clear();
    containers.clear();
    effect_containers.clear();
    outputs.clear();
    built.clear();
  }
};

// Idle states. Used with the interpreter lock held.
class CallStates {
 public:
  // A state for the duration of one call; calls of several threads, and nested ones, have their own.
  class Lease {
   public:
    explicit Lease(CallStates& states) : states_(states), state_(states.take()) {}
    ~Lease() { states_.give_back(std::move(state_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    CallState& operator*() const { return *state_; }

   private:
    CallStates& states_;
    std::unique_ptr<CallState> state_;
  };

 private:
  static constexpr size_t kMaxIdle = 8;
  static constexpr size_t kMaxWords = size_t{1} << 16;  // of a state that is worth keeping

  std::unique_ptr<CallState> take() {
    if (idle_.empty()) [[unlikely]]
      return std::make_unique<CallState>();
    std::unique_ptr<CallState> state = std::move(idle_.back());
    idle_.pop_back();
    return state;
  }
  void give_back(std::unique_ptr<CallState> state) {
    state->clear();  // may run Python code that calls the same object: the state is not idle yet
    if (idle_.size() < kMaxIdle && state->facts.arguments.words.capacity() <= kMaxWords) {
      idle_.push_back(std::move(state));
    }
  }

  std::vector<std::unique_ptr<CallState>> idle_;
};

}  // namespace trident::python
