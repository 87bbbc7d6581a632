// Frames: planned tensors over an arena, parameter blocks, cleanup.
#include "host/frame.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "abi/error.h"
#include "host/program.h"

namespace trident::host {

Frame::Frame(Program& program, const Arena& arena)
    : trident_frame{}, program_(program), arena_id_(arena.id()) {
  const trident_program& description = program.description();
  slot_table_.resize(description.num_slots, nullptr);
  output_table_.resize(description.num_outputs, nullptr);
  planned_.reserve(description.num_planned);
  for (uint32_t slot = 0; slot < description.num_planned; ++slot) {
    planned_.push_back(planned_tensor(description.planned[slot], arena.storage()));
    slot_table_[slot] = wrap(planned_.back().get());
  }
  build_launches(program.variants());
  slots = slot_table_.data();
  outputs = output_table_.data();
  number_tensors = program.number_tensors();
  // The base's `launches` is what generated code writes parameters and grids through.
  trident_frame::launches = blocks_.data();
}

Frame::~Frame() { end(); }

void Frame::build_launches(Variants& variants) {
  const trident_program& description = program_.description();
  size_t count = 0;
  for (uint32_t index = 0; index < description.num_launches; ++index)
    count += description.launches[index].num_params;
  values_.resize(count, 0);
  blocks_.resize(description.num_launches);
  choices_.resize(description.num_launches, 0);
  launches_.reserve(description.num_launches);

  uint64_t* values = values_.data();
  for (uint32_t index = 0; index < description.num_launches; ++index) {
    const trident_launch_record& record = description.launches[index];
    for (uint32_t param = 0; param < record.num_params; ++param) {
      const trident_param& source = record.params[param];
      if (source.source == TRIDENT_PARAM_CONSTANT) values[param] = source.value;
      if (source.source == TRIDENT_PARAM_PLANNED) {
        addresses_.push_back({values + param, static_cast<uint32_t>(source.value)});
      }
    }
    blocks_[index].values = values;
    std::copy_n(record.grid, 3, blocks_[index].grid);
    const int device = program_.device().index();
    if (record.num_facts > 0) {
      launches_.emplace_back(VaryingLaunch(variants, index, device, values));
    } else {
      launches_.emplace_back(
          driver::make_launch(*program_.kernels()[record.kernel], device, values));
    }
    values += record.num_params;
  }
}

void Frame::begin(const Arena& arena, void* stream, const trident_tensor* call_inputs,
                  const int64_t* call_symbols) {
  if (arena.id() != arena_id_) [[unlikely]]
    move_to(arena);
  if (arena.generation() != generation_) [[unlikely]]
    write_addresses(arena);
  stream_ = stream;
  inputs = call_inputs;
  symbols = call_symbols;
  stage = 0;
}

uint32_t Frame::choose_variants() {
  const trident_program& description = program_.description();
  if (description.choose == nullptr) [[likely]]
    return 0;
  description.choose(symbols, choices_.data());
  uint32_t compiled = 0;
  for (size_t index = 0; index < launches_.size(); ++index) {
    if (auto* varying = std::get_if<VaryingLaunch>(&launches_[index])) {
      compiled += varying->choose(choices_[index]);
    }
  }
  return compiled;
}

void Frame::move_to(const Arena& arena) {
  for (const TensorRef& tensor : planned_) tensor->set_storage_keep_dtype(arena.storage());
  arena_id_ = arena.id();
}

void Frame::write_addresses(const Arena& arena) {
  for (const Address& address : addresses_) {
    *address.value = reinterpret_cast<uint64_t>(data(slot_table_[address.slot]));
  }
  generation_ = arena.generation();
}

void Frame::note_launch(uint32_t index) {
  const trident_launch_record& record = program_.description().launches[index];
  const uint32_t* const grid = blocks_[index].grid;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;  // nothing was launched
  const auto* varying = std::get_if<VaryingLaunch>(&launches_[index]);
  const driver::Launch& launch =
      varying != nullptr ? varying->launch() : std::get<driver::Launch>(launches_[index]);
  CapturedLaunch noted{nullptr, std::get<driver::CudaLaunch>(launch).num_params(), {}};
  const size_t count = varying != nullptr ? varying->params().size() : record.num_params;
  for (uint32_t position = 0; position < count; ++position) {
    const uint32_t param = varying != nullptr ? varying->params()[position] : position;
    const trident_param& from = record.params[param];
    if (from.source == TRIDENT_PARAM_INPUT || from.source == TRIDENT_PARAM_OUTPUT) {
      noted.pointers.push_back({from.source, from.value, position, blocks_[index].values[param]});
    }
  }
  if (noted.pointers.empty()) return;
  noted.node = driver::CudaLibrary::instance().last_captured(stream_);
  captured_->push_back(std::move(noted));
}

void Frame::take_outputs(std::vector<TensorRef>& taken) {
  for (size_t index = 0; index < output_table_.size(); ++index) {
    TORCH_CHECK(output_table_[index] != nullptr, "program ", program_.name(),
                " did not store its output ", index);
  }
  taken.reserve(taken.size() + output_table_.size());
  for (trident_tensor& output : output_table_)
    taken.push_back(take(std::exchange(output, nullptr)));
}

void Frame::take_unfinished(std::vector<TensorRef>& taken) noexcept {
  const auto give = program_.description().give;
  if (give == nullptr) return;
  if (give(this) != 0) abi::take_pending();  // the run's own error is the one to tell
  for (trident_tensor& output : output_table_)
    taken.push_back(take(std::exchange(output, nullptr)));
}

void Frame::end() noexcept {
  for (size_t slot = planned_.size(); slot < slot_table_.size(); ++slot) release(slot_table_[slot]);
  for (trident_tensor& output : output_table_) release(output);
  inputs = nullptr;
  symbols = nullptr;
  captured_ = nullptr;
}

}  // namespace trident::host
