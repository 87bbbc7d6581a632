#include "host/graph_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace trident::host {

GraphTable::State* GraphTable::find(const std::vector<int64_t>& symbols) {
  if (last_ >= states_.size() || states_[last_].symbols != symbols) {
    const auto found = std::find_if(states_.begin(), states_.end(),
                                    [&](const State& state) { return state.symbols == symbols; });
    if (found == states_.end()) return nullptr;
    last_ = static_cast<size_t>(found - states_.begin());
  }
  states_[last_].last_use = ++clock_;
  return &states_[last_];
}

GraphTable::State& GraphTable::of(const std::vector<int64_t>& symbols) {
  if (State* const known = find(symbols)) return *known;
  if (states_.size() < kMaxStates) {
    last_ = states_.size();
    states_.emplace_back();
  } else {
    const auto worth = [](const State& state) {
      return std::make_tuple(state.replay != nullptr, state.last_use);
    };
    const auto least =
        std::min_element(states_.begin(), states_.end(),
                         [&](const State& a, const State& b) { return worth(a) < worth(b); });
    last_ = static_cast<size_t>(least - states_.begin());
    State forgotten = std::exchange(*least, State());
    least->symbols.swap(forgotten.symbols);  // for its memory
  }
  State& made = states_[last_];
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
