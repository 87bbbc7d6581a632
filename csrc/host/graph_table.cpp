#include "host/graph_table.h"

#include <algorithm>
#include <tuple>

namespace trident::host {

GraphTable::State* GraphTable::find(const std::vector<int64_t>& symbols) {
  for (State& state : states_) {
    if (state.symbols == symbols) {
      state.last_use = ++clock_;
      return &state;
    }
  }
  return nullptr;
}

GraphTable::State& GraphTable::of(const std::vector<int64_t>& symbols) {
  if (State* const known = find(symbols)) return *known;
  if (states_.size() < kMaxStates) {
    states_.emplace_back();
  } else {
    const auto worth = [](const State& state) {
      return std::make_tuple(state.replay != nullptr, state.last_use);
    };
    const auto least =
        std::min_element(states_.begin(), states_.end(),
                         [&](const State& a, const State& b) { return worth(a) < worth(b); });
    *least = State();
    std::swap(*least, states_.back());
  }
  State& made = states_.back();
  made.symbols = symbols;
  made.last_use = ++clock_;
  return made;
}

bool GraphTable::wants_capture(State& state, uint64_t after_hits) {
  const bool enough = state.calls++ >= after_hits;
  if (captures_ >= (state.symbols.empty() ? kMaxCaptures : kMaxCapturesOfSizes)) [[unlikely]]
    return false;
  // A cache or another large input was replaced for good: the graph is captured anew.
  if (state.mismatches >= kMismatchesBeforeRecapture) [[unlikely]]
    state.tried = false;
  return enough && !state.tried;
}

}  // namespace trident::host
