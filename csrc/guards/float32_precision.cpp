// torch's own functions raise an error where the user has set some operators apart, and look eleven
// entries up in a hash table to answer in full. Where the installed torch keeps the settings as its
// header of 2.14 does, they are read in place.
#include "guards/float32_precision.h"

#include <ATen/Context.h>

#include <iterator>

namespace trident::guards {
namespace {

constexpr unsigned kBitsPerSetting = 3;
constexpr unsigned kOperators = 4;   // ALL, CONV, RNN, MATMUL
constexpr unsigned kSettings = 12;   // three backends with four operators each
constexpr unsigned kOlderBits = 36;  // then two bits of matmul precision, one of allow_tf32

uint64_t place(at::Float32Backend backend, at::Float32Op op, at::Float32Precision precision) {
  const unsigned index = static_cast<unsigned>(backend) * kOperators + static_cast<unsigned>(op);
  return static_cast<uint64_t>(precision) << (index * kBitsPerSetting);
}

static_assert(kSettings * kBitsPerSetting == kOlderBits);

#ifdef TRIDENT_TORCH_PRECISION_MEMBERS

// An explicit instantiation may name a private member, and so hand out its address.
template <typename Name, auto kMember>
struct Reveal {
  friend auto member(Name) { return kMember; }
};
struct Settings {
  friend auto member(Settings);
};
struct MatmulPrecision {
  friend auto member(MatmulPrecision);
};
struct AllowTf32 {
  friend auto member(AllowTf32);
};
template struct Reveal<Settings, &at::Context::fp32_precision>;
template struct Reveal<MatmulPrecision, &at::Context::float32_matmul_precision>;
template struct Reveal<AllowTf32, &at::Context::allow_tf32_cudnn>;

uint64_t older_settings(const at::Context& context) {
  return static_cast<uint64_t>(context.*member(MatmulPrecision())) |
         static_cast<uint64_t>(context.*member(AllowTf32())) << 2;
}

uint64_t settings(const at::Context& context) {
  uint64_t word = 0;
  for (const auto& [key, precision] : context.*member(Settings())) {
    word |= place(key.first, key.second, precision);
  }
  return word;
}

#else

uint64_t older_settings(const at::Context& context) {
  uint64_t word = 0;
  try {
    word = static_cast<uint64_t>(context.float32MatmulPrecision());
  } catch (const c10::Error&) {
    word = 3;
  }
  try {
    word |= static_cast<uint64_t>(context.allowTF32CuDNN()) << 2;
  } catch (const c10::Error&) {
  }
  return word;
}

uint64_t settings(const at::Context& context) {
  uint64_t word = 0;
  for (const auto backend : {at::Float32Backend::CUDA, at::Float32Backend::MKLDNN}) {
    for (const auto op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
      word |= place(backend, op, context.float32Precision(backend, op));
    }
  }
  return word;
}

#endif

}  // namespace

std::vector<std::pair<std::string, std::string>> describe_float32_precision(uint64_t word) {
  const struct {
    at::Float32Backend backend;
    at::Float32Op op;
    const char* name;
  } settings[] = {
      {at::Float32Backend::GENERIC, at::Float32Op::ALL, "torch.backends.fp32_precision"},
      {at::Float32Backend::CUDA, at::Float32Op::ALL, "torch.backends.cudnn.fp32_precision"},
      {at::Float32Backend::CUDA, at::Float32Op::MATMUL,
       "torch.backends.cuda.matmul.fp32_precision"},
      {at::Float32Backend::CUDA, at::Float32Op::CONV, "torch.backends.cudnn.conv.fp32_precision"},
      {at::Float32Backend::CUDA, at::Float32Op::RNN, "torch.backends.cudnn.rnn.fp32_precision"},
      {at::Float32Backend::MKLDNN, at::Float32Op::ALL, "torch.backends.mkldnn.fp32_precision"},
      {at::Float32Backend::MKLDNN, at::Float32Op::MATMUL,
       "torch.backends.mkldnn.matmul.fp32_precision"},
      {at::Float32Backend::MKLDNN, at::Float32Op::CONV,
       "torch.backends.mkldnn.conv.fp32_precision"},
      {at::Float32Backend::MKLDNN, at::Float32Op::RNN, "torch.backends.mkldnn.rnn.fp32_precision"},
  };
  static constexpr const char* kPrecisions[] = {"none", "ieee", "tf32", "bf16", "default"};
  static constexpr const char* kMatmul[] = {"highest", "high", "medium", "mixed"};
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& each : settings) {
    const uint64_t unit = place(each.backend, each.op, static_cast<at::Float32Precision>(1));
    const uint64_t value = word / unit & 7;
    facts.emplace_back(each.name, value < std::size(kPrecisions) ? kPrecisions[value] : "unknown");
  }
  const uint64_t older = word >> kOlderBits;
  facts.emplace_back("torch.get_float32_matmul_precision()", kMatmul[older & 3]);
  facts.emplace_back("torch.backends.cudnn.allow_tf32", older & 4 ? "True" : "False");
  return facts;
}

uint64_t float32_precision_word() {
  const at::Context& context = at::globalContext();
  return settings(context) | older_settings(context) << kOlderBits;
}

}  // namespace trident::guards
