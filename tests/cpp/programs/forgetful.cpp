// A program that stores no output, and with symbol 0 set, fails without an error.
#include "abi/abi.h"

namespace {

trident_status run(trident_frame* frame) { return frame->symbols[0] != 0; }

const trident_program program = {
    .abi_version = TRIDENT_ABI_VERSION,
    .name = "forgetful",
    .device = {0, -1},
    .num_outputs = 1,
    .num_symbols = 1,
    .run = run,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const trident_program* trident_program_entry(
    const trident_api*) {
  return &program;
}
