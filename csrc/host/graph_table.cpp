#include "host/graph_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "scm/hash.h"

namespace trident::host {
namespace {

uint64_t hash_of(const std::vector<int64_t>& symbols) {
  return scm::hash_words({reinterpret_cast<const uint64_t*>(symbols.data()), symbols.size()});
}

}  // namespace

void GraphTable::fit(size_t kernels) {
  max_states_ = std::clamp(kMaxKernels / std::max<size_t>(kernels, 1), kMinStates, kMaxStates);
}

GraphTable::State* GraphTable::find(const std::vector<int64_t>& symbols) {
  if (last_ >= states_.size() || states_[last_].symbols != symbols) {
    const uint64_t wanted = hash_of(symbols);
    size_t index = 0;
    while (index < states_.size() &&
           (hashes_[index] != wanted || states_[index].symbols != symbols))
      ++index;
    if (index == states_.size()) return nullptr;
    last_ = index;
  }
  states_[last_].last_use = ++clock_;
  return &states_[last_];
}

GraphTable::State& GraphTable::of(const std::vector<int64_t>& symbols) {
  if (State* const known = find(symbols)) return *known;
  if (states_.size() < max_states_) {
    last_ = states_.size();
    states_.emplace_back();
    hashes_.emplace_back();
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
  hashes_[last_] = hash_of(symbols);
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
