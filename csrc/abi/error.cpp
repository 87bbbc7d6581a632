#include "abi/error.h"

#include <stdexcept>

namespace trident::abi {
namespace {
thread_local std::exception_ptr pending;
}

trident_status set_pending(std::exception_ptr error) noexcept {
  pending = std::move(error);
  return 1;
}

std::exception_ptr take_pending() noexcept {
  std::exception_ptr error = std::exchange(pending, nullptr);
  if (error) return error;
  return std::make_exception_ptr(
      std::runtime_error("a Trident host program failed without saying why; please report this"));
}

}  // namespace trident::abi
