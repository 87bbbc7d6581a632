// torch's settings of how float32 is computed (TF32, bfloat16) as one word.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trident::guards {

// Less than 2^40; different for different settings, whether made through the older or the newer
// interface (set_float32_matmul_precision, allow_tf32, fp32_precision). Never raises.
uint64_t float32_precision_word();

// What the word holds, each setting under the name by which Python reads it.
std::vector<std::pair<std::string, std::string>> describe_float32_precision(uint64_t word);

}  // namespace trident::guards
