#include "guards/environment.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>

#include "guards/class_info.h"
#include "guards/float32_precision.h"
#include "guards/words.h"

namespace trident::guards {
namespace {

class Bits {
 public:
  Bits& operator<<(bool bit) {
    value_ = value_ << 1 | static_cast<uint64_t>(bit);
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

uint64_t autocast_word(c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return 0;
  return 1 | static_cast<uint64_t>(at::autocast::get_autocast_dtype(device)) << 8 |
         static_cast<uint64_t>(at::autocast::is_autocast_cache_enabled()) << 16;
}

uint64_t current_cuda_device() {
  const auto* guard =
      c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].load();
  // Asking for the device would create a context; where none exists, nothing can be current.
  if (!guard || !at::globalContext().hasCUDA()) return 0xff;
  return static_cast<uint8_t>(guard->getDevice().index());
}

std::atomic<uint64_t> registrations{0};

// What user code or a library puts on tensors' classes: their methods are looked up by calls that
// hold no other trace of them. Parameter derives from Tensor, so that its epoch covers both, as does
// its version tag: a change of a class invalidates those of all that derive from it.
struct TensorClasses {
  unsigned int version = 0;
  uint64_t epoch = 0;
  bool held = false;
};

TensorClasses tensor_classes;  // the interpreter lock covers it

uint64_t tensor_classes_epoch() {
  TensorClasses& known = tensor_classes;
  auto* type = reinterpret_cast<PyTypeObject*>(ParameterClass);
  if (!type || known.held) return known.epoch;
  if (known.version != 0 && type->tp_version_tag == known.version &&
      PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) [[likely]] {
    return known.epoch;
  }
  known.epoch = class_epoch(type);
  known.version = type_version(type);
  return known.epoch;
}

}  // namespace

bool in_autocast_region() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting() > 0;
}

void hold_tensor_classes(bool hold) {
  tensor_classes_epoch();
  tensor_classes.held = hold;
}

void set_registrations(uint64_t id) { registrations.store(id, std::memory_order_relaxed); }

const char* environment_unsupported() {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    return "a torch dispatch mode is active (a TorchDispatchMode such as FakeTensorMode or "
           "FlopCounterMode)";
  }
  if (at::impl::torch_function_mode_enabled()) {
    return "a torch function mode is active (torch.device as context, torch.set_default_device, "
           "or a TorchFunctionMode)";
  }
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  if (local.included_.has_any(c10::DispatchKeySet(
          {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Functionalize,
           c10::DispatchKey::PythonDispatcher, c10::DispatchKey::PreDispatch}))) {
    return "a torch.func transform or functionalization is active";
  }
  if (local.included_.has(c10::DispatchKey::Tracer)) return "torch.jit.trace is active";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) {
    return "forward-mode differentiation is active";
  }
  if (c10::GradMode::is_enabled() && !at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) {
    return "hooks for saved tensors are active (torch.autograd.graph.saved_tensors_hooks, or "
           "torch.utils.checkpoint around the call)";
  }
  return nullptr;
}

void append_environment(std::vector<uint64_t>& words) {
  const at::Context& context = at::globalContext();
  Bits bits;
  bits << c10::GradMode::is_enabled() << c10::InferenceMode::is_enabled()
       << context.deterministicAlgorithms() << context.deterministicAlgorithmsWarnOnly()
       << context.deterministicFillUninitializedMemory() << context.userEnabledCuDNN()
       << context.benchmarkCuDNN() << context.deterministicCuDNN() << context.userEnabledMkldnn()
       << context.userEnabledFlashSDP() << context.userEnabledMemEfficientSDP()
       << context.userEnabledMathSDP() << context.userEnabledCuDNNSDP()
       << context.allowFP16BF16ReductionMathSDP() << context.allowFP16AccumulationCuBLAS()
       << context.allowFP16ReductionCPU();
  words.push_back(tagged(Tag::kEnvironment, bits.value()));
  words.push_back(static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())) |
                  static_cast<uint64_t>(context.allowFP16ReductionCuBLAS()) << 8 |
                  static_cast<uint64_t>(context.allowBF16ReductionCuBLAS()) << 16 |
                  current_cuda_device() << 24);
  words.push_back(float32_precision_word());
  words.push_back(autocast_word(c10::DeviceType::CPU) | autocast_word(c10::DeviceType::CUDA) << 32);
  words.push_back(static_cast<uint64_t>(at::get_num_threads()) |
                  registrations.load(std::memory_order_relaxed) << 32);
  words.push_back(tensor_classes_epoch());
}

}  // namespace trident::guards
