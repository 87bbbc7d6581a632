#include "aten/boxed.h"

#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "aten/arguments.h"
#include "aten/with_views.h"

namespace trident::aten {
namespace {

bool is_tensor_result(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::ListType) {
    return type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  if (type.kind() == c10::TypeKind::OptionalType) {
    return type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  return type.kind() == c10::TypeKind::TensorType;
}

// Moves one return of the schema behind the results already there.
void collect(c10::IValue&& value, std::vector<at::Tensor>& results) {
  if (value.isTensor()) {
    results.push_back(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    for (at::Tensor& tensor : value.toTensorVector()) results.push_back(std::move(tensor));
  } else {
    TORCH_CHECK(value.isNone(), "an operator returned ", value.tagKind(),
                " where its schema says Tensor");
    results.emplace_back();
  }
}

}  // namespace

BoxedOp::BoxedOp(c10::OperatorHandle handle, std::string name)
    : handle_(std::move(handle)), name_(std::move(name)) {
  const c10::FunctionSchema& schema = handle_.schema();
  TORCH_CHECK(
      !schema.is_vararg() && !schema.is_varret(), name_,
      " cannot be called from a compiled program: it takes or returns any number of values");
  for (const c10::Argument& argument : schema.arguments()) {
    parameters_.push_back(describe(argument, name_));
  }
  for (const c10::Argument& result : schema.returns()) {
    const bool written = result.alias_info() != nullptr && result.alias_info()->isWrite();
    TORCH_CHECK(written || is_tensor_result(*result.real_type()), name_,
                " cannot be called from a compiled program: it returns ", result.real_type()->str(),
                ", and only tensors can be passed on");
    returned_.push_back(!written);
  }
  const auto aliases = [](const c10::Argument& each) { return each.alias_info() != nullptr; };
  below_views_ = schema.name().starts_with("aten::") &&
                 std::ranges::none_of(schema.arguments(), aliases) &&
                 std::ranges::none_of(schema.returns(), aliases);
}

BoxedOp BoxedOp::resolve(const char* qualified_overload) {
  const std::string_view full = qualified_overload;
  const size_t scope = full.find("::");
  TORCH_CHECK(scope != std::string_view::npos, "'", qualified_overload,
              "' does not name an operator as 'namespace::name.overload'");
  const size_t dot = full.find('.', scope);
  const c10::OperatorName name(
      std::string(full.substr(0, dot)),
      dot == std::string_view::npos ? "" : std::string(full.substr(dot + 1)));
  std::optional<c10::OperatorHandle> handle = c10::Dispatcher::singleton().findSchema(name);
  TORCH_CHECK(handle.has_value(), "there is no operator ", qualified_overload,
              "; the library that defines it must be loaded first");
  return BoxedOp(std::move(*handle), qualified_overload);
}

void BoxedOp::call(const trident_value* args, uint32_t num_args, trident_tensor* results,
                   uint32_t num_results) const {
  TORCH_CHECK(num_args == parameters_.size(), name_, " takes ", parameters_.size(),
              " arguments, got ", num_args);
  torch::jit::Stack stack;
  stack.reserve(std::max(parameters_.size(), returned_.size()));
  for (uint32_t i = 0; i < num_args; ++i) {
    stack.push_back(convert(parameters_[i], args[i], name_));
  }
  if (below_views_) {
    handle_.callBoxed(stack);
  } else {
    const WithViews with_views;
    handle_.callBoxed(stack);
  }
  TORCH_CHECK(stack.size() == returned_.size(), name_, " returned ", stack.size(),
              " values where its schema says ", returned_.size());
  std::vector<at::Tensor> tensors;
  tensors.reserve(num_results);
  for (size_t i = 0; i < stack.size(); ++i) {
    if (returned_[i]) collect(std::move(stack[i]), tensors);
  }
  TORCH_CHECK(tensors.size() == num_results, name_, " returned ", tensors.size(),
              " tensors where the program expects ", num_results);
  for (uint32_t i = 0; i < num_results; ++i) results[i] = own(std::move(tensors[i]));
}

}  // namespace trident::aten
