// The function table that host programs are given.
#pragma once

#include "abi/abi.h"

namespace trident::host {

// Valid for the life of the process.
const trident_api& program_api();

}  // namespace trident::host
