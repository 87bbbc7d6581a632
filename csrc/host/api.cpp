// Implements trident_api: each function is a small C face of the frame or of tensor.h.
#include "host/api.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "abi/error.h"
#include "aten/with_views.h"
#include "host/program.h"

namespace trident::host {
namespace {

trident_status api_allocate(trident_frame* frame, const trident_layout* layout, int32_t on_cpu,
                            trident_tensor* out) {
  return abi::guarded([&] {
    const Program& program = static_cast<Frame*>(frame)->program();
    *out = give(on_cpu != 0 ? allocate(*layout, c10::DeviceType::CPU, c10::GetCPUAllocator())
                            : allocate(*layout, program.device().type(), program.allocator()));
  });
}

trident_status api_view(trident_tensor base, const trident_layout* layout, int32_t escapes,
                        trident_tensor* out) {
  if (escapes == 0) return abi::guarded([&] { *out = give(view(unwrap(base), *layout, false)); });
  return aten::guarded_with_views([&] { *out = give(view(unwrap(base), *layout, true)); });
}

trident_tensor api_retain(trident_tensor tensor) {
  return tensor == nullptr ? nullptr : give(TensorRef::reclaim_copy(unwrap(tensor)));
}

void api_release(trident_tensor* slot) { release(*slot); }

void* api_data(trident_tensor tensor) { return data(tensor); }

trident_status api_launch(trident_frame* frame, uint32_t launch) {
  return abi::guarded([&] { static_cast<Frame*>(frame)->launch(launch); });
}

trident_status api_call_boxed(trident_frame* frame, uint32_t op, const trident_value* args,
                              uint32_t num_args, trident_tensor* results, uint32_t num_results) {
  return abi::guarded([&] {
    static_cast<Frame*>(frame)->program().boxed()[op].call(args, num_args, results, num_results);
  });
}

trident_status api_expect(trident_frame* frame, trident_tensor tensor, const trident_layout* layout,
                          int32_t on_cpu, const char* op) {
  return abi::guarded([&] {
    const Program& program = static_cast<Frame*>(frame)->program();
    expect(unwrap(tensor), *layout,
           on_cpu != 0 ? c10::Device(c10::DeviceType::CPU) : program.device(), op);
  });
}

trident_status api_fail(const char* message) {
  return abi::guarded([&] { TORCH_CHECK(false, message); });
}

}  // namespace

const trident_api& program_api() {
  static constexpr trident_api table = {
      .abi_version = TRIDENT_ABI_VERSION,
      .allocate = api_allocate,
      .view = api_view,
      .retain = api_retain,
      .release = api_release,
      .data = api_data,
      .launch = api_launch,
      .call_boxed = api_call_boxed,
      .expect = api_expect,
      .fail = api_fail,
  };
  return table;
}

}  // namespace trident::host
