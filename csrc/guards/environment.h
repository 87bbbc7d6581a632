// PyTorch's global state that decides what a call does, as words.
#pragma once

#include <cstdint>
#include <vector>

namespace trident::guards {

// Why a call in the present environment cannot be served natively (an active dispatch, function or
// functorch mode), or nullptr.
const char* environment_unsupported();

// Appends grad and inference mode, autocast, default dtype, determinism, precision and attention
// backend flags, thread count and the current CUDA device.
void append_environment(std::vector<uint64_t>& words);

}  // namespace trident::guards
