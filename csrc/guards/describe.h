// Says in words what encoded facts hold: tensor headers, devices, the environment.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trident::guards {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// A word of tensor_header(): dtype, device, dimensions, and so on.
NamedValues describe_tensor_header(uint64_t word);

// A word with Tag::kDevice, as torch spells it: "cuda:0".
std::string describe_device(uint64_t word);

// The words of append_environment(). Each fact has the name under which Python reads it.
NamedValues describe_environment(std::span<const uint64_t> words);

}  // namespace trident::guards
