// The CUDA graphs of one specialization, by the values of its symbols: a graph holds the sizes that it
// was captured with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "host/graph_replay.h"

namespace trident::host {

class GraphTable {
 public:
  // What is known of replaying the program for some values of its symbols; without symbols, at all.
  struct State {
    std::vector<int64_t> symbols;
    std::shared_ptr<GraphReplay> replay;
    uint64_t calls = 0;       // hits so far
    bool tried = false;       // there is a replay, or there is none to be had
    uint32_t mismatches = 0;  // calls in a row that the replay could not serve
    std::set<size_t> moved;   // inputs that did not lie where a replay needed them
    uint64_t last_use = 0;
  };

  // Of a program of so many kernels: the smaller its graphs, the more of them are kept.
  void fit(size_t kernels);

  // The state of these values if they are known; valid until the next `of`.
  State* find(const std::vector<int64_t>& symbols);
  // The same, from now on known: forgets the values that were not met for longest, those with a replay
  // last.
  State& of(const std::vector<int64_t>& symbols);

  bool given_up() const { return given_up_; }
  // Whether the program is to be captured for the values of `state`, whose call this is: it has been hit
  // often enough, and was not tried, or its replay did not fit the last calls.
  bool wants_capture(State& state, uint64_t after_hits);
  void count_capture() { ++captures_; }
  // No further values are captured: what is in the way does not lie in them.
  void give_up() { given_up_ = true; }

  static constexpr size_t kMinStates = 16;
  static constexpr size_t kMaxStates = 64;
  static constexpr size_t kMaxKernels = 1024;  // of all graphs together, beyond the first 16
  static constexpr uint32_t kMismatchesBeforeRecapture = 3;
  // A capture takes the time of hundreds of calls; where these never settle, it ends.
  static constexpr uint32_t kMaxCaptures = 16;
  static constexpr uint32_t kMaxCapturesOfSizes = 64;

 private:
  std::vector<State> states_;
  std::vector<uint64_t> hashes_;  // of the states' symbols
  size_t max_states_ = kMinStates;
  size_t last_ = 0;  // which was asked for last
  bool given_up_ = false;
  uint64_t clock_ = 0;
  uint32_t captures_ = 0;
};

}  // namespace trident::host
