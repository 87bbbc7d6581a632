// A wrong table would otherwise show as a memory error in the middle of a user's model.
#include "host/validate.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "host/tensor.h"

namespace trident::host {
namespace {

void validate_planned(const trident_program& program) {
  TORCH_CHECK(program.num_planned <= program.num_slots, "program ", program.name, " has ",
              program.num_planned, " planned tensors in ", program.num_slots, " slots");
  for (uint32_t slot = 0; slot < program.num_planned; ++slot) {
    const trident_layout& layout = program.planned[slot];
    TORCH_CHECK(
        layout.dtype >= 0 && layout.dtype < static_cast<int32_t>(c10::ScalarType::NumOptions),
        "program ", program.name, ": planned slot ", slot, " has the unknown dtype ", layout.dtype);
    const int64_t itemsize =
        static_cast<int64_t>(c10::elementSize(static_cast<c10::ScalarType>(layout.dtype)));
    TORCH_CHECK(layout.ndim >= 0 && layout.offset >= 0 && layout.offset % itemsize == 0, "program ",
                program.name, ": planned slot ", slot, " starts at byte ", layout.offset,
                ", which is not a multiple of ", itemsize);
    for (int32_t axis = 0; axis < layout.ndim; ++axis) {
      TORCH_CHECK(layout.sizes[axis] >= 0 && layout.strides[axis] >= 0, "program ", program.name,
                  ": planned slot ", slot, " has a negative size or stride");
    }
    const int64_t elements = extent(layout);
    TORCH_CHECK(elements == 0 || static_cast<uint64_t>(layout.offset) +
                                         static_cast<uint64_t>(elements * itemsize) <=
                                     program.arena_bytes,
                "program ", program.name, ": planned slot ", slot, " ends beyond the arena of ",
                program.arena_bytes, " bytes");
  }
}
bool holds_address(driver::ParamKind kind) {
  return kind == driver::ParamKind::kPointer || kind == driver::ParamKind::kTensorMap;
}

void validate_kernel(const trident_program& program, const driver::Kernel* kernel) {
  const bool on_cuda = program.device.type == static_cast<int32_t>(c10::DeviceType::CUDA);
  const driver::Backend backend = on_cuda ? driver::Backend::kCuda : driver::Backend::kCpu;
  TORCH_CHECK(kernel != nullptr && kernel->backend() == backend, "program ", program.name,
              " runs on ", on_cuda ? "CUDA" : "the CPU", ", its kernel ",
              kernel == nullptr ? "(none)" : kernel->label(), " does not");
}

// The parameters of a launch record that a kernel takes, in the kernel's order.
void validate_params(const trident_program& program, uint32_t launch, const driver::Kernel& kernel,
                     const std::vector<uint32_t>& params) {
  const trident_launch_record& record = program.launches[launch];
  TORCH_CHECK(params.size() == kernel.kinds().size(), "program ", program.name, ": launch ", launch,
              " passes ", params.size(), " parameters to kernel ", kernel.label(), ", which takes ",
              kernel.kinds().size());
  for (size_t position = 0; position < params.size(); ++position) {
    TORCH_CHECK(params[position] < record.num_params, "program ", program.name, ": launch ", launch,
                " has no parameter ", params[position]);
    const trident_param& source = record.params[params[position]];
    TORCH_CHECK(source.source != TRIDENT_PARAM_PLANNED ||
                    (source.value < program.num_planned && holds_address(kernel.kinds()[position])),
                "program ", program.name, ": launch ", launch, ", parameter ", params[position],
                " (", kernel.params()[position], ") takes the address of planned slot ",
                source.value, " of ", program.num_planned);
    const bool of_input = source.source == TRIDENT_PARAM_INPUT;
    const uint32_t count = of_input ? program.num_inputs : program.num_outputs;
    TORCH_CHECK(
        (!of_input && source.source != TRIDENT_PARAM_OUTPUT) ||
            (source.value < count && kernel.kinds()[position] == driver::ParamKind::kPointer),
        "program ", program.name, ": launch ", launch, ", parameter ", params[position], " (",
        kernel.params()[position], ") takes an address in ", of_input ? "input " : "output ",
        source.value, " of ", count);
  }
}

void validate_launches(const trident_program& program,
                       const std::vector<std::shared_ptr<driver::Kernel>>& kernels) {
  for (const std::shared_ptr<driver::Kernel>& kernel : kernels) {
    validate_kernel(program, kernel.get());
  }
  for (uint32_t index = 0; index < program.num_launches; ++index) {
    const trident_launch_record& record = program.launches[index];
    for (uint32_t param = 0; param < record.num_params; ++param) {
      const int32_t source = record.params[param].source;
      TORCH_CHECK(source >= TRIDENT_PARAM_CONSTANT && source <= TRIDENT_PARAM_OUTPUT, "program ",
                  program.name, ": launch ", index, ", parameter ", param,
                  " has the unknown source ", source);
    }
    if (record.num_facts > 0) {
      TORCH_CHECK(record.num_facts <= 64 && program.choose != nullptr, "program ", program.name,
                  ": launch ", index, " has ", record.num_facts,
                  " facts to choose a kernel by, of at most 64, or nothing that tells them");
      continue;
    }
    TORCH_CHECK(record.kernel < kernels.size(), "program ", program.name, ": launch ", index,
                " uses kernel ", record.kernel, " of ", kernels.size());
    std::vector<uint32_t> all(record.num_params);
    std::iota(all.begin(), all.end(), 0);
    validate_params(program, index, *kernels[record.kernel], all);
  }
}

}  // namespace

void validate_variant(const trident_program& program, uint32_t launch, const Variant& variant) {
  TORCH_CHECK(launch < program.num_launches && program.launches[launch].num_facts > 0, "program ",
              program.name, " has no launch ", launch, " whose kernel varies");
  validate_kernel(program, variant.kernel.get());
  validate_params(program, launch, *variant.kernel, variant.params);
}

void validate(const trident_program& program,
              const std::vector<std::shared_ptr<driver::Kernel>>& kernels) {
  TORCH_CHECK(program.abi_version == TRIDENT_ABI_VERSION,
              "the host program was compiled for version ", program.abi_version,
              " of Trident's interface, this is version ", TRIDENT_ABI_VERSION,
              "; clear Trident's cache");
  TORCH_CHECK(program.name != nullptr && program.run != nullptr,
              "a host program lacks its name or its run function");
  const auto device = static_cast<c10::DeviceType>(program.device.type);
  TORCH_CHECK(device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA, "program ",
              program.name, " is for a device of type ", program.device.type,
              "; Trident knows cpu and cuda");
  TORCH_CHECK(program.num_numbers == 0 || program.compute != nullptr, "program ", program.name,
              " has numbers and nothing that computes them");
  validate_planned(program);
  validate_launches(program, kernels);
}

}  // namespace trident::host
