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

void rethrow_pending() {
  std::exception_ptr error = std::exchange(pending, nullptr);
  if (!error) {
    throw std::runtime_error(
        "a Trident host program failed without saying why; please report this");
  }
  std::rethrow_exception(std::move(error));
}

}  // namespace trident::abi
