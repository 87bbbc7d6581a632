#include "aten/boxed_values.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include <iterator>
#include <optional>
#include <vector>

#include "aten/arguments.h"

namespace trident::aten {
namespace {

using Kind = BoxedParameter::Kind;

std::optional<Kind> element_kind(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Kind::kTensor;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return Kind::kInt;
    case c10::TypeKind::FloatType:
      return Kind::kFloat;
    case c10::TypeKind::BoolType:
      return Kind::kBool;
    case c10::TypeKind::NumberType:
      return Kind::kScalar;
    case c10::TypeKind::StringType:
      return Kind::kString;
    case c10::TypeKind::DeviceObjType:
      return Kind::kDevice;
    case c10::TypeKind::GeneratorType:
      return Kind::kGenerator;
    default:
      return std::nullopt;
  }
}

std::optional<Kind> list_kind(const c10::Type& element) {
  if (element.kind() == c10::TypeKind::OptionalType) {
    const c10::Type& inner = *element.castRaw<c10::OptionalType>()->getElementType();
    if (inner.kind() == c10::TypeKind::TensorType) return Kind::kOptionalTensorList;
    return std::nullopt;
  }
  switch (element_kind(element).value_or(Kind::kString)) {
    case Kind::kTensor:
      return Kind::kTensorList;
    case Kind::kInt:
      return Kind::kIntList;
    case Kind::kFloat:
      return Kind::kFloatList;
    case Kind::kBool:
      return Kind::kBoolList;
    default:
      return std::nullopt;
  }
}

const char* kind_name(uint32_t kind) {
  constexpr const char* kNames[] = {"None",
                                    "a tensor",
                                    "an int",
                                    "a float",
                                    "a bool",
                                    "a string",
                                    "a device",
                                    "a list of ints",
                                    "a list of floats",
                                    "a list of bools",
                                    "a list of tensors"};
  return kind < std::size(kNames) ? kNames[kind] : "a value of unknown kind";
}

const char* expected_name(Kind kind) {
  switch (kind) {
    case Kind::kTensor:
      return "a tensor or a number";
    case Kind::kInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kBool:
      return "a bool";
    case Kind::kScalar:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kDevice:
      return "a device";
    case Kind::kGenerator:
      return "None (the default generator)";
    case Kind::kIntList:
      return "a list of ints";
    case Kind::kFloatList:
      return "a list of floats";
    case Kind::kBoolList:
      return "a list of bools";
    case Kind::kTensorList:
      return "a list of tensors";
    case Kind::kOptionalTensorList:
      return "a list of tensors and None";
  }
  return "something else";
}

template <typename Element, typename Source>
c10::IValue list_of(const Source* values, uint32_t length) {
  c10::List<Element> list;
  list.reserve(length);
  for (uint32_t i = 0; i < length; ++i) list.push_back(static_cast<Element>(values[i]));
  return list;
}

c10::IValue tensors_of(const trident_tensor* tensors, uint32_t length, const std::string& name) {
  c10::List<at::Tensor> list;
  list.reserve(length);
  for (uint32_t i = 0; i < length; ++i) {
    TORCH_CHECK(tensors[i] != nullptr, "argument '", name, "' has None at position ", i,
                " where a tensor is expected");
    list.push_back(retain(tensors[i]));
  }
  return list;
}

// A number where a tensor is expected, as in `x + 2`; it takes part in type promotion as a number does.
c10::IValue wrapped_number(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Numbers, as Python's argument parser takes them: an int will do for a float, nothing else narrows.
std::optional<c10::IValue> convert_number(const BoxedParameter& parameter,
                                          const trident_value& value) {
  const bool scalar = parameter.kind == Kind::kScalar;
  const bool tensor = parameter.kind == Kind::kTensor;
  switch (value.kind) {
    case TRIDENT_VALUE_INT:
      if (tensor) return wrapped_number(value.as.i);
      if (scalar || parameter.kind == Kind::kInt) return value.as.i;
      if (parameter.kind == Kind::kFloat) return static_cast<double>(value.as.i);
      if (parameter.kind == Kind::kIntList && parameter.repeat > 0) {
        return c10::List<int64_t>(std::vector<int64_t>(parameter.repeat, value.as.i));
      }
      return std::nullopt;
    case TRIDENT_VALUE_FLOAT:
      if (tensor) return wrapped_number(value.as.f);
      if (scalar || parameter.kind == Kind::kFloat) return value.as.f;
      return std::nullopt;
    case TRIDENT_VALUE_BOOL:
      if (tensor) return wrapped_number(value.as.i != 0);
      if (scalar || parameter.kind == Kind::kBool) return value.as.i != 0;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// An empty list does not show what it is a list of.
std::optional<c10::IValue> empty_list(Kind kind) {
  switch (kind) {
    case Kind::kIntList:
      return c10::IValue(c10::List<int64_t>());
    case Kind::kFloatList:
      return c10::IValue(c10::List<double>());
    case Kind::kBoolList:
      return c10::IValue(c10::List<bool>());
    case Kind::kTensorList:
      return c10::IValue(c10::List<at::Tensor>());
    case Kind::kOptionalTensorList:
      return c10::IValue(c10::List<std::optional<at::Tensor>>());
    default:
      return std::nullopt;
  }
}

std::optional<c10::IValue> convert_list(const BoxedParameter& parameter,
                                        const trident_value& value) {
  if (value.kind < TRIDENT_VALUE_INT_LIST || value.kind > TRIDENT_VALUE_TENSOR_LIST) {
    return std::nullopt;
  }
  if (value.length == 0) return empty_list(parameter.kind);
  switch (parameter.kind) {
    case Kind::kIntList:
      if (value.kind != TRIDENT_VALUE_INT_LIST) return std::nullopt;
      return list_of<int64_t>(value.as.ints, value.length);
    case Kind::kFloatList:
      if (value.kind == TRIDENT_VALUE_INT_LIST) return list_of<double>(value.as.ints, value.length);
      if (value.kind != TRIDENT_VALUE_FLOAT_LIST) return std::nullopt;
      return list_of<double>(value.as.floats, value.length);
    case Kind::kBoolList:
      if (value.kind != TRIDENT_VALUE_BOOL_LIST) return std::nullopt;
      return list_of<bool>(value.as.ints, value.length);
    case Kind::kTensorList:
      if (value.kind != TRIDENT_VALUE_TENSOR_LIST) return std::nullopt;
      return tensors_of(value.as.tensors, value.length, parameter.name);
    case Kind::kOptionalTensorList:
      if (value.kind != TRIDENT_VALUE_TENSOR_LIST) return std::nullopt;
      return c10::IValue(arg::optional_tensors(value.as.tensors, value.length));
    default:
      return std::nullopt;
  }
}

std::optional<c10::IValue> try_convert(const BoxedParameter& parameter,
                                       const trident_value& value) {
  switch (value.kind) {
    case TRIDENT_VALUE_NONE:
      if (parameter.optional) return c10::IValue();
      return std::nullopt;
    case TRIDENT_VALUE_TENSOR:
      if (parameter.kind != Kind::kTensor) return std::nullopt;
      if (value.as.tensor == nullptr && parameter.optional) return c10::IValue();
      return c10::IValue(retain(value.as.tensor));
    case TRIDENT_VALUE_STRING:
      if (parameter.kind != Kind::kString) return std::nullopt;
      return c10::IValue(value.as.string);
    case TRIDENT_VALUE_DEVICE:
      if (parameter.kind != Kind::kDevice) return std::nullopt;
      return c10::IValue(*arg::optional_device(&value.as.device));
    default:
      break;
  }
  if (std::optional<c10::IValue> number = convert_number(parameter, value)) return number;
  return convert_list(parameter, value);
}

}  // namespace

BoxedParameter describe(const c10::Argument& argument, const std::string& op) {
  const c10::Type* type = argument.real_type().get();
  const bool optional = type->kind() == c10::TypeKind::OptionalType;
  if (optional) type = type->castRaw<c10::OptionalType>()->getElementType().get();
  std::optional<Kind> kind;
  int32_t repeat = 0;
  if (type->kind() == c10::TypeKind::ListType) {
    kind = list_kind(*type->castRaw<c10::ListType>()->getElementType());
    repeat = argument.N().value_or(0);
  } else {
    kind = element_kind(*type);
  }
  TORCH_CHECK(kind.has_value(), op, " cannot be called from a compiled program: its parameter '",
              argument.name(), "' has type ", argument.real_type()->str());
  return {*kind, optional, repeat, argument.name()};
}

c10::IValue convert(const BoxedParameter& parameter, const trident_value& value,
                    const std::string& op) {
  std::optional<c10::IValue> converted = try_convert(parameter, value);
  TORCH_CHECK(converted.has_value(), op, ": argument '", parameter.name, "' must be ",
              expected_name(parameter.kind), parameter.optional ? " or None" : "", ", not ",
              kind_name(value.kind));
  return std::move(*converted);
}

}  // namespace trident::aten
