// Checks a program's tables before anything runs from them.
#pragma once

#include <memory>
#include <vector>

#include "abi/abi.h"
#include "driver/kernel.h"

namespace trident::host {

// Throws a RuntimeError that names the program and what is wrong with it.
void validate(const trident_program& program,
              const std::vector<std::shared_ptr<driver::Kernel>>& kernels);

}  // namespace trident::host
