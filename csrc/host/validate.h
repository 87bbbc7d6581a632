// Checks a program's tables before anything runs from them.
#pragma once

#include <memory>
#include <vector>

#include "abi/abi.h"
#include "driver/kernel.h"
#include "host/variants.h"

namespace trident::host {

// Throws a RuntimeError that names the program and what is wrong with it.
void validate(const trident_program& program,
              const std::vector<std::shared_ptr<driver::Kernel>>& kernels);

// The same of a kernel variant for a launch of the program.
void validate_variant(const trident_program& program, uint32_t launch, const Variant& variant);

}  // namespace trident::host
