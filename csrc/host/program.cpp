// Loading and running host programs.
#include "host/program.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <set>

#include "abi/error.h"
#include "aten/registry.h"
#include "host/api.h"
#include "host/validate.h"

namespace trident::host {
namespace {

// Frames that an idle program keeps: one per stream that calls it, or per concurrent call.
constexpr size_t kMaxIdleFrames = 8;

// What a program's operators run under: below autograd and what keeps views and versions, but for
// those that need it (aten/with_views.h), and below autocast, whose casts are part of the program.
struct BelowTheProgram {
  const at::AutoDispatchBelowADInplaceOrView autograd;
  const c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

c10::Device resolve_device(const trident_device& device) {
  const auto type = static_cast<c10::DeviceType>(device.type);
  if (type == c10::DeviceType::CPU) return {type, -1};
  at::globalContext().lazyInitDevice(type);
  const c10::Device current = c10::impl::getDeviceGuardImpl(type)->getDevice();
  return device.index < 0 ? current
                          : c10::Device(type, static_cast<c10::DeviceIndex>(device.index));
}

}  // namespace

c10::Allocator* allocator_of(c10::Device device) {
  return device.is_cuda() ? at::detail::getCUDAHooks().getCUDADeviceAllocator()
                          : c10::GetCPUAllocator();
}

void Program::CloseLibrary::operator()(void* library) const { dlclose(library); }

std::shared_ptr<Program> Program::load(const std::string& path,
                                       std::vector<std::shared_ptr<driver::Kernel>> kernels) {
  Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  TORCH_CHECK(library != nullptr, "cannot load the host program ", path, ": ", dlerror());
  const auto entry =
      reinterpret_cast<trident_program_entry_fn>(dlsym(library.get(), TRIDENT_PROGRAM_ENTRY));
  TORCH_CHECK(entry != nullptr, path,
              " is not a host program: it does not export " TRIDENT_PROGRAM_ENTRY);
  const trident_program* const description = entry(&program_api());
  TORCH_CHECK(description != nullptr, "the host program ", path, " gives no description of itself");
  validate(*description, kernels);
  std::shared_ptr<Program> program(
      new Program(std::move(library), description, std::move(kernels)));
  program->resolve();
  return program;
}

Program::Program(Library library, const trident_program* description,
                 std::vector<std::shared_ptr<driver::Kernel>> kernels)
    : library_(std::move(library)),
      description_(description),
      kernels_(std::move(kernels)),
      device_(resolve_device(description->device)),
      allocator_(allocator_of(device_)),
      variants_(*description, device_.index()) {
  idle_.reserve(kMaxIdleFrames);
}

Program::~Program() = default;

void Program::resolve() {
  for (uint32_t index = 0; index < description_->num_imports; ++index) {
    const trident_import& import = description_->imports[index];
    *import.target = aten::resolve_typed(import.op, import.device);
  }
  boxed_.reserve(description_->num_boxed);
  for (uint32_t index = 0; index < description_->num_boxed; ++index) {
    boxed_.push_back(aten::BoxedOp::resolve(description_->boxed[index]));
  }
  for (uint32_t index = 0; index < description_->num_number_tensors; ++index) {
    numbers_.push_back(number_tensor(description_->number_tensors[index]));
    number_table_.push_back(wrap(numbers_.back().get()));
  }
  for (const std::shared_ptr<driver::Kernel>& kernel : kernels_) kernel->load(device_.index());
}

uint32_t Program::run(const trident_tensor* inputs, const int64_t* symbols,
                      std::vector<TensorRef>& outputs, Unfinished* unfinished) {
  const BelowTheProgram below;
  if (device_.is_cpu()) return run_on_device(inputs, symbols, &outputs, unfinished);
  const c10::DeviceGuard guard(device_);
  return run_on_device(inputs, symbols, &outputs, unfinished);
}

void Program::capture(const trident_tensor* inputs, const int64_t* symbols,
                      std::vector<TensorRef>& outputs, std::vector<CapturedLaunch>& captured) {
  TORCH_CHECK(device_.is_cuda(), "program ", name(), " runs on no GPU");
  const BelowTheProgram below;
  const c10::DeviceGuard guard(device_);
  run_on_device(inputs, symbols, &outputs, nullptr, &captured);
}

std::map<size_t, size_t> Program::pointers(trident_param_source source) const {
  std::map<size_t, size_t> counts;
  for (uint32_t index = 0; index < launches(); ++index) {
    const trident_launch_record& record = description_->launches[index];
    std::set<size_t> taken;
    for (uint32_t param = 0; param < record.num_params; ++param) {
      if (record.params[param].source == source) taken.insert(record.params[param].value);
    }
    for (const size_t each : taken) ++counts[each];
  }
  return counts;
}

uint32_t Program::prepare(const trident_tensor* inputs, const int64_t* symbols) {
  if (device_.is_cpu()) return run_on_device(inputs, symbols, nullptr);
  const c10::DeviceGuard guard(device_);
  return run_on_device(inputs, symbols, nullptr);
}

uint32_t Program::run_on_device(const trident_tensor* inputs, const int64_t* symbols,
                                std::vector<TensorRef>* outputs, Unfinished* unfinished,
                                std::vector<CapturedLaunch>* captured) {
  const c10::Stream stream = c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_);
  void* native_stream = nullptr;
  bool capturing = false;
  if (device_.is_cuda()) {
    driver::CudaLibrary& library = driver::CudaLibrary::instance();
    library.ensure_context(device_.index());
    native_stream = stream.native_handle();
    capturing = library.is_capturing(native_stream);
  }

  ArenaPool& pool = ArenaPool::instance();
  const ArenaLease arena =
      capturing ? ArenaPool::lease_private(stream, allocator_) : pool.lease(stream, allocator_);
  arena->reserve(arena_bytes());
  const FrameScope frame(*this,
                         capturing ? std::make_unique<Frame>(*this, *arena) : acquire_frame(*arena),
                         !capturing);
  frame->begin(*arena, native_stream, inputs, symbols);
  if (captured != nullptr) frame->note_launches(*captured);
  const uint32_t compiled = frame->choose_variants();
  if (outputs == nullptr) return compiled;
  if (description_->run(frame.get()) != 0) [[unlikely]] {
    const std::exception_ptr error = abi::take_pending();
    if (unfinished != nullptr) {
      unfinished->stage = frame->stage;
      frame->take_unfinished(unfinished->outputs);
    }
    std::rethrow_exception(error);
  }
  frame->take_outputs(*outputs);
  return compiled;
}

Program::FrameScope::~FrameScope() {
  frame_->end();
  if (keep_) program_.give_back(std::move(frame_));
}

std::unique_ptr<Frame> Program::acquire_frame(const Arena& arena) {
  {
    const std::lock_guard lock(mutex_);
    const auto last = std::find_if(idle_.rbegin(), idle_.rend(), [&arena](const auto& frame) {
      return frame->arena_id() == arena.id();
    });
    if (last != idle_.rend()) {
      std::unique_ptr<Frame> frame = std::move(*last);
      idle_.erase(std::next(last).base());
      return frame;
    }
    if (idle_.size() >= kMaxIdleFrames) {
      std::unique_ptr<Frame> frame = std::move(idle_.front());
      idle_.erase(idle_.begin());
      return frame;
    }
  }
  return std::make_unique<Frame>(*this, arena);
}

void Program::give_back(std::unique_ptr<Frame> frame) noexcept {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdleFrames) {
    idle_.push_back(std::move(frame));  // the room was reserved
    return;
  }
  std::rotate(idle_.begin(), idle_.begin() + 1, idle_.end());
  idle_.back().swap(frame);
}

}  // namespace trident::host
