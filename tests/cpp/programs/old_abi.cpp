// A program that was compiled for another version of the interface.
#include "abi/abi.h"

extern "C" __attribute__((visibility("default"))) const trident_program* trident_program_entry(
    const trident_api*) {
  static const trident_program program = {.abi_version = TRIDENT_ABI_VERSION + 1};
  return &program;
}
