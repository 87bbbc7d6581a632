#include "guards/describe.h"

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <iterator>
#include <stdexcept>

#include "guards/environment.h"
#include "guards/float32_precision.h"

namespace trident::guards {
namespace {

uint64_t byte_of(uint64_t word, int index) { return word >> (8 * index) & 0xff; }

std::string text(bool value) { return value ? "True" : "False"; }

std::string dtype_name(uint64_t code) {
  return reinterpret_cast<THPDtype*>(torch::getTHPDtype(static_cast<c10::ScalarType>(code)))->name;
}

std::string device_name(uint64_t type, uint64_t index) {
  return c10::Device(static_cast<c10::DeviceType>(static_cast<int8_t>(type)),
                     static_cast<c10::DeviceIndex>(static_cast<int8_t>(index)))
      .str();
}

std::string autocast_name(uint64_t word) {
  if (!(word & 1)) return "off";
  return dtype_name(byte_of(word, 1)) + (byte_of(word, 2) ? "" : ", without cache");
}

// In the order of append_environment(), the first flag in the highest bit.
constexpr const char* kFlags[] = {
    "torch.is_grad_enabled()",
    "torch.is_inference_mode_enabled()",
    "torch.are_deterministic_algorithms_enabled()",
    "torch.is_deterministic_algorithms_warn_only_enabled()",
    "torch.utils.deterministic.fill_uninitialized_memory",
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
    "torch.backends.mkldnn.enabled",
    "torch.backends.cuda.flash_sdp_enabled()",
    "torch.backends.cuda.mem_efficient_sdp_enabled()",
    "torch.backends.cuda.math_sdp_enabled()",
    "torch.backends.cuda.cudnn_sdp_enabled()",
    "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()",
    "torch.backends.cuda.matmul.allow_fp16_accumulation",
    "torch._C._get_cpu_allow_fp16_reduced_precision_reduction()",
};

}  // namespace

NamedValues describe_tensor_header(uint64_t word) {
  return {{"dtype", dtype_name(byte_of(word, 0))},
          {"device", device_name(byte_of(word, 1), byte_of(word, 2))},
          {"dimensions", std::to_string(byte_of(word, 3))},
          {"requires_grad", text(word >> 36 & 1)},
          {"made in inference mode", text(word >> 37 & 1)}};
}

std::string describe_device(uint64_t word) { return device_name(byte_of(word, 1), word & 0xff); }

NamedValues describe_environment(std::span<const uint64_t> words) {
  if (words.size() != kEnvironmentWords) throw std::invalid_argument("not an environment");
  NamedValues facts;
  constexpr size_t count = std::size(kFlags);
  for (size_t i = 0; i < count; ++i) {
    facts.emplace_back(kFlags[i], text(words[0] >> (count - 1 - i) & 1));
  }
  const uint64_t device = byte_of(words[1], 3);
  facts.emplace_back("torch.get_default_dtype()", dtype_name(byte_of(words[1], 0)));
  facts.emplace_back("torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
                     std::to_string(byte_of(words[1], 1)));
  facts.emplace_back("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
                     std::to_string(byte_of(words[1], 2)));
  facts.emplace_back("torch.cuda.current_device()",
                     device == 0xff ? "none" : std::to_string(device));
  for (auto& fact : describe_float32_precision(words[2])) facts.push_back(std::move(fact));
  facts.emplace_back("torch.autocast of the CPU", autocast_name(words[3] & 0xffffffff));
  facts.emplace_back("torch.autocast of CUDA", autocast_name(words[3] >> 32));
  facts.emplace_back("torch.get_num_threads()", std::to_string(words[4] & 0xffffffff));
  facts.emplace_back("operators registered from Python", "set " + std::to_string(words[4] >> 32));
  facts.emplace_back("torch.Tensor and torch.nn.Parameter", "version " + std::to_string(words[5]));
  return facts;
}

}  // namespace trident::guards
