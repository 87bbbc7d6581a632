// A loaded host program: the shared library that was compiled for one specialization.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/abi.h"
#include "abi/profiled.h"
#include "aten/boxed.h"
#include "driver/driver.h"
#include "host/frame.h"
#include "host/tensor.h"
#include "host/variants.h"

namespace trident::host {

// PyTorch's allocator for a device.
c10::Allocator* allocator_of(c10::Device device);

// A run that an error ended: the stage it had come to, and the outputs, undefined where they had not
// been made. Empty for programs whose calls change nothing before an operator that may raise.
struct Unfinished {
  uint32_t stage = 0;
  std::vector<TensorRef> outputs;
};

// Immutable after load(), but for its pool of idle frames. Calls may run concurrently.
class Program {
 public:
  // Opens the library, checks its tables against `kernels`, resolves its operators and makes the
  // kernels ready on the program's device. A mistake in any of that is a RuntimeError.
  static std::shared_ptr<Program> load(const std::string& path,
                                       std::vector<std::shared_ptr<driver::Kernel>> kernels);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the program on the current stream of its device and appends its outputs. `inputs` holds
  // num_inputs() borrowed tensors, `symbols` num_symbols() values. Errors of operators, kernels and
  // the driver are rethrown as they were; the program can be run again. Does not need the
  // interpreter lock, which the caller should have released. Returns how many kernel variants had
  // to be compiled first.
  TRIDENT_PROFILED uint32_t run(const trident_tensor* inputs, const int64_t* symbols,
                                std::vector<TensorRef>& outputs, Unfinished* unfinished = nullptr);

  // The same while the current stream, one of a GPU, is being captured. Appends to `captured` the
  // launches that work on memory which only launches touch.
  void capture(const trident_tensor* inputs, const int64_t* symbols,
               std::vector<TensorRef>& outputs, std::vector<CapturedLaunch>& captured);

  // Compiles the kernel variants that such a run needs; returns how many were missing.
  uint32_t prepare(const trident_tensor* inputs, const int64_t* symbols);

  // The residual guard over symbols.
  bool guard(const int64_t* symbols) const {
    return description_->guard == nullptr || description_->guard(symbols) != 0;
  }

  // The numbers in the call's result and effects.
  std::vector<int64_t> numbers(const int64_t* symbols) const {
    std::vector<int64_t> values(description_->num_numbers);
    if (description_->compute != nullptr) description_->compute(symbols, values.data());
    return values;
  }

  const char* name() const { return description_->name; }
  uint32_t num_inputs() const { return description_->num_inputs; }
  uint32_t num_outputs() const { return description_->num_outputs; }
  uint32_t num_symbols() const { return description_->num_symbols; }
  uint32_t launches() const { return description_->num_launches; }
  uint32_t calls_typed() const { return description_->calls_typed; }
  uint32_t calls_boxed() const { return description_->calls_boxed; }
  // False where a call only hands out inputs and views.
  bool runs_kernels() const { return launches() + calls_typed() + calls_boxed() != 0; }
  uint64_t arena_bytes() const { return description_->arena_bytes; }
  c10::Device device() const { return device_; }  // with its index resolved

  // How many launches take an address in each input or output (`source`) that nothing but launches
  // touches: so many kernels of a captured graph could be pointed elsewhere.
  std::map<size_t, size_t> pointers(trident_param_source source) const;

  const trident_program& description() const { return *description_; }
  const std::vector<std::shared_ptr<driver::Kernel>>& kernels() const { return kernels_; }
  const std::vector<aten::BoxedOp>& boxed() const { return boxed_; }
  Variants& variants() { return variants_; }
  const trident_tensor* number_tensors() const { return number_table_.data(); }
  // Where fresh tensors on the program's device come from.
  c10::Allocator* allocator() const { return allocator_; }

 private:
  // A shared library that is closed with its last user.
  struct CloseLibrary {
    void operator()(void* library) const;
  };
  using Library = std::unique_ptr<void, CloseLibrary>;

  // A frame for one call: cleaned at its end, however that comes, and kept for the next if `keep`.
  class FrameScope {
   public:
    FrameScope(Program& program, std::unique_ptr<Frame> frame, bool keep)
        : program_(program), frame_(std::move(frame)), keep_(keep) {}
    ~FrameScope();
    FrameScope(const FrameScope&) = delete;
    FrameScope& operator=(const FrameScope&) = delete;
    Frame* operator->() const { return frame_.get(); }
    Frame* get() const { return frame_.get(); }

   private:
    Program& program_;
    std::unique_ptr<Frame> frame_;
    bool keep_;
  };

  Program(Library library, const trident_program* description,
          std::vector<std::shared_ptr<driver::Kernel>> kernels);
  void resolve();
  // Without `outputs` the call is only prepared.
  uint32_t run_on_device(const trident_tensor* inputs, const int64_t* symbols,
                         std::vector<TensorRef>* outputs, Unfinished* unfinished = nullptr,
                         std::vector<CapturedLaunch>* captured = nullptr);
  std::unique_ptr<Frame> acquire_frame(const Arena& arena);
  void give_back(std::unique_ptr<Frame> frame) noexcept;

  Library library_;
  const trident_program* description_;
  std::vector<std::shared_ptr<driver::Kernel>> kernels_;
  c10::Device device_;
  c10::Allocator* allocator_;
  std::vector<aten::BoxedOp> boxed_;
  Variants variants_;
  std::vector<TensorRef> numbers_;
  std::vector<trident_tensor> number_table_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;  // the most recently used last
};

}  // namespace trident::host
