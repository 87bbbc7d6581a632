// The facts of one tensor, as words.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <vector>

namespace trident::guards {

// Why a tensor cannot be described, or nullptr: sparse, quantized, lazy conjugate, other devices.
const char* tensor_unsupported(const c10::TensorImpl& tensor);

// One header word (dtype, device, rank, requires_grad, inference flag).
uint64_t tensor_header(const c10::TensorImpl& tensor);

// The address of the first element modulo 16; 0 without elements.
uint64_t tensor_alignment(const c10::TensorImpl& tensor);

// Appends header, sizes, strides and alignment.
void append_tensor(const c10::TensorImpl& tensor, std::vector<uint64_t>& words);

// Whether the tensor still has exactly the facts that `append_tensor` wrote at `words`.
bool tensor_matches(const c10::TensorImpl& tensor, const uint64_t* words);

}  // namespace trident::guards
