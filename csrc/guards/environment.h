// PyTorch's global state that decides what a call does, as words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trident::guards {

// Why a call in the present environment cannot be served natively (an active dispatch, function or
// functorch mode), or nullptr.
const char* environment_unsupported();

// What Python has registered with the dispatcher, as a number that `trident.capture.registrations`
// gives to each set of registrations. Calls and changes may happen in any thread.
void set_registrations(uint64_t id);

// While a trace has put its own methods into torch.Tensor, calls in other threads go on with the
// number that its attributes had before.
void hold_tensor_classes(bool hold);

// Whether the thread is in a `torch.autocast` context, be it one that turns autocast off.
bool in_autocast_region();

inline constexpr size_t kEnvironmentWords = 6;

// Appends grad and inference mode, autocast, default dtype, determinism, precision and attention
// backend flags, thread count, the current CUDA device, what is registered with the dispatcher, and
// a number for the attributes of torch.Tensor and torch.nn.Parameter.
// describe.cpp names them in the same order.
void append_environment(std::vector<uint64_t>& words);

}  // namespace trident::guards
