// How the values of the C interface become the IValues that an operator's schema asks for.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include "abi/abi.h"

namespace trident::aten {

// What a parameter of a schema accepts.
struct BoxedParameter {
  enum class Kind {
    kTensor,
    kInt,  // int, SymInt, and the enums dtype, layout and memory_format
    kFloat,
    kBool,
    kScalar,
    kString,
    kDevice,
    kGenerator,  // None only: the default generator
    kIntList,
    kFloatList,
    kBoolList,
    kTensorList,
    kOptionalTensorList,
  };

  Kind kind;
  bool optional;
  // Of a list that also takes a single number ("int[2]"), how often it is repeated; 0 otherwise.
  int32_t repeat;
  std::string name;
};

// Describes one parameter of operator `op`; throws c10::Error for a type that the C interface cannot carry.
BoxedParameter describe(const c10::Argument& argument, const std::string& op);

// The value as `parameter` takes it; throws c10::Error, naming the parameter of `op`, where it does not fit.
// Tensors are retained.
c10::IValue convert(const BoxedParameter& parameter, const trident_value& value,
                    const std::string& op);

}  // namespace trident::aten
