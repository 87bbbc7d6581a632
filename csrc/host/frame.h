// The mutable memory of one running call of a program.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "abi/abi.h"
#include "driver/driver.h"
#include "host/arena.h"
#include "host/captured_launch.h"
#include "host/tensor.h"
#include "host/variants.h"

namespace trident::host {

class Program;

// What generated code sees is the base. Planned tensors, parameter blocks and launches are made
// once; bind() points them at the arena that a call has leased.
class Frame : public trident_frame {
 public:
  // A frame over `arena`'s storage, for calls of `program`, which outlives it.
  Frame(Program& program, const Arena& arena);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // The arena that the frame's tensors lie in.
  uint64_t arena_id() const { return arena_id_; }

  // Prepares one call. `inputs` and `symbols` live until the call ends; `arena` has its memory.
  void begin(const Arena& arena, void* stream, const trident_tensor* call_inputs,
             const int64_t* call_symbols);
  // Chooses the kernel variants that the call needs and has missing ones compiled; returns how many.
  uint32_t choose_variants();
  // Moves the outputs out; an error if the program left one unset.
  void take_outputs(std::vector<TensorRef>& taken);
  // The same after `run` raised: outputs that had not been made are undefined.
  void take_unfinished(std::vector<TensorRef>& taken) noexcept;
  // Has the call's launches, which are being captured, noted in `captured`.
  void note_launches(std::vector<CapturedLaunch>& captured) { captured_ = &captured; }
  // Releases what the call left in transient slots and outputs.
  void end() noexcept;

  void launch(uint32_t index) {
    if (auto* fixed = std::get_if<driver::Launch>(&launches_[index])) [[likely]] {
      driver::run_launch(*fixed, blocks_[index].grid, stream_);
    } else {
      std::get_if<VaryingLaunch>(&launches_[index])->run(blocks_[index].grid, stream_);
    }
    if (captured_ != nullptr) [[unlikely]]
      note_launch(index);
  }
  const Program& program() const { return program_; }

 private:
  void build_launches(Variants& variants);
  void move_to(const Arena& arena);
  void write_addresses(const Arena& arena);
  void note_launch(uint32_t index);

  // A parameter that holds the address of a planned tensor.
  struct Address {
    uint64_t* value;
    uint32_t slot;
  };

  const Program& program_;
  uint64_t arena_id_;
  uint64_t generation_ = 0;
  void* stream_ = nullptr;
  std::vector<CapturedLaunch>* captured_ = nullptr;
  std::vector<TensorRef> planned_;
  std::vector<trident_tensor> slot_table_;
  std::vector<trident_tensor> output_table_;
  std::vector<uint64_t> values_;  // of all launches, one after the other
  std::vector<trident_launch> blocks_;
  std::vector<std::variant<driver::Launch, VaryingLaunch>> launches_;
  std::vector<uint64_t> choices_;
  std::vector<Address> addresses_;
};

}  // namespace trident::host
