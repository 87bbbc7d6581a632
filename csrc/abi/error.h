// Errors across the C interface: a shim catches the C++ exception, keeps it for the calling thread
// and returns a status; the caller at the other end of the generated code rethrows it.
#pragma once

#include <exception>
#include <utility>

#include "abi/abi.h"

namespace trident::abi {

// Keeps `error` as the calling thread's pending error and returns the status to pass on.
trident_status set_pending(std::exception_ptr error) noexcept;

// Takes the pending error of the calling thread; a RuntimeError if a program failed without one.
std::exception_ptr take_pending() noexcept;

// Runs `body`; an exception becomes the pending error.
template <typename Body>
inline trident_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return 0;
  } catch (...) {
    return set_pending(std::current_exception());
  }
}

}  // namespace trident::abi
