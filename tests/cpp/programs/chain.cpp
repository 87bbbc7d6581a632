// A host program as the code generator would write it: mm into planned memory, a boxed relu, a launch,
// outputs, and views that escape and that do not. Symbol 0 says where to stop with an error:
// 1 after the boxed call, 2 after the outputs are stored, 3 an operator's own error, 4 before the last
// output.
#include "abi/abi.h"

namespace {

const trident_api* api;
trident_status (*mm_out)(trident_tensor, trident_tensor, trident_tensor);

constexpr int32_t kFloat = 6;  // c10::ScalarType::Float

const int64_t matrix_sizes[] = {2, 3};
const int64_t matrix_strides[] = {3, 1};
const int64_t row_sizes[] = {3};
const int64_t row_strides[] = {1};
const int64_t empty_sizes[] = {0, 3};

const trident_layout planned[] = {
    {kFloat, 2, matrix_sizes, matrix_strides, 64},
    {kFloat, 1, row_sizes, row_strides, 64 + 12},  // the second row of slot 0
    {kFloat, 2, empty_sizes, matrix_strides, 0},
};
const trident_layout output_layout = {kFloat, 2, matrix_sizes, matrix_strides, 0};
const trident_layout row_of_input = {kFloat, 1, row_sizes, row_strides, 3};

const trident_param params[] = {
    {TRIDENT_PARAM_RUNTIME, 0}, {TRIDENT_PARAM_PLANNED, 1},  {TRIDENT_PARAM_RUNTIME, 0},
    {TRIDENT_PARAM_PLANNED, 2}, {TRIDENT_PARAM_CONSTANT, 7},
};
const trident_launch_record launches[] = {{0, 5, params, {2, 1, 1}, 0}};
const trident_import imports[] = {{"mm.out", "cpu", reinterpret_cast<void**>(&mm_out)}};
const char* const boxed[] = {"aten::relu"};

trident_status give(trident_frame* frame) {
  if (frame->slots[4] != nullptr) frame->outputs[2] = api->retain(frame->slots[4]);
  return 0;
}

trident_status run(trident_frame* frame) {
  const trident_tensor x = frame->inputs[0];
  const trident_tensor w = frame->inputs[1];
  trident_tensor* const slots = frame->slots;
  TRIDENT_TRY(mm_out(x, w, slots[0]));

  trident_value argument = {TRIDENT_VALUE_TENSOR, 0, {slots[0]}};
  TRIDENT_TRY(api->call_boxed(frame, 0, &argument, 1, &slots[3], 1));
  frame->stage = 1;
  if (frame->symbols[0] == 1) return api->fail("stopped after the boxed call");

  TRIDENT_TRY(api->allocate(frame, &output_layout, 0, &frame->outputs[0]));
  trident_launch& launch = frame->launches[0];
  launch.values[0] = reinterpret_cast<uint64_t>(api->data(slots[3]));
  launch.values[2] = reinterpret_cast<uint64_t>(api->data(frame->outputs[0]));
  TRIDENT_TRY(api->launch(frame, 0));
  api->release(&slots[3]);

  TRIDENT_TRY(api->view(x, &row_of_input, 1, &frame->outputs[1]));
  TRIDENT_TRY(api->view(x, &row_of_input, 0, &slots[4]));
  frame->stage = 2;
  if (frame->symbols[0] == 4) return api->fail("stopped before the last output");
  TRIDENT_TRY(give(frame));
  if (frame->symbols[0] == 2) return api->fail("stopped after the outputs");
  if (frame->symbols[0] == 3) TRIDENT_TRY(mm_out(x, x, slots[0]));
  return 0;
}

int32_t guard(const int64_t* symbols) { return symbols[0] >= 0; }

void compute(const int64_t* symbols, int64_t* numbers) { numbers[0] = 3 * symbols[0] + 1; }

const trident_program program = {
    .abi_version = TRIDENT_ABI_VERSION,
    .name = "chain",
    .device = {0, -1},
    .num_inputs = 2,
    .num_outputs = 3,
    .num_planned = 3,
    .num_slots = 5,
    .num_symbols = 1,
    .arena_bytes = 128,
    .planned = planned,
    .num_launches = 1,
    .launches = launches,
    .num_imports = 1,
    .imports = imports,
    .num_boxed = 1,
    .boxed = boxed,
    .calls_typed = 1,
    .calls_boxed = 1,
    .guard = guard,
    .choose = nullptr,
    .num_numbers = 1,
    .compute = compute,
    .run = run,
    .give = give,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const trident_program* trident_program_entry(
    const trident_api* table) {
  api = table;
  return &program;
}
