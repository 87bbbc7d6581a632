// Calls of any registered operator through the dispatcher, with the C interface's values as arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

#include "abi/abi.h"
#include "aten/boxed_values.h"

namespace trident::aten {

// One operator overload, resolved once.
class BoxedOp {
 public:
  // `qualified_overload`: "aten::mm.out" or "aten::relu". Throws c10::Error where there is no such operator,
  // or where its signature has a type that the C interface cannot carry.
  static BoxedOp resolve(const char* qualified_overload);

  // Arguments are borrowed and must be complete, in schema order. Results are owned, in schema order, lists
  // flattened, NULL for undefined; those that alias a written argument are not returned. Throws c10::Error
  // for arguments or a number of results that do not fit, and whatever the operator throws.
  void call(const trident_value* args, uint32_t num_args, trident_tensor* results,
            uint32_t num_results) const;

 private:
  BoxedOp(c10::OperatorHandle handle, std::string name);

  c10::OperatorHandle handle_;
  std::string name_;
  std::vector<BoxedParameter> parameters_;
  std::vector<bool> returned_;  // per return of the schema
  bool below_views_ = false;    // an operator of ATen's that neither writes nor makes views
};

}  // namespace trident::aten
