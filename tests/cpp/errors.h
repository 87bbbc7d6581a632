// What the tests say of errors.
#pragma once

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace trident::test {

// The message, without PyTorch's backtrace, of the Error that `body` throws. Fails if it throws none.
template <typename Error = std::exception, typename Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    return of_torch ? of_torch->what_without_backtrace() : error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace trident::test
