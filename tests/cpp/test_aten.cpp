// Typed shims and boxed calls: every kind of overload, ownership of results, and errors.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "abi/error.h"
#include "aten/arguments.h"
#include "aten/boxed.h"
#include "aten/registry.h"
#include "errors.h"

namespace trident::aten {
namespace {

using test::message_of;

trident_tensor borrow(const at::Tensor& tensor) {
  return reinterpret_cast<trident_tensor>(tensor.unsafeGetTensorImpl());
}

at::Tensor take(trident_tensor owned) {
  at::Tensor tensor = adopt(owned);
  return tensor;
}

template <typename... Parameters>
trident_status call_typed(const char* name, Parameters... parameters) {
  using Shim = trident_status (*)(Parameters...);
  return reinterpret_cast<Shim>(resolve_typed(name, "cpu"))(parameters...);
}

std::string pending_message() {
  try {
    std::rethrow_exception(abi::take_pending());
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

trident_value tensor_value(const at::Tensor& tensor) {
  return {.kind = TRIDENT_VALUE_TENSOR, .length = 0, .as = {.tensor = borrow(tensor)}};
}

trident_value int_value(int64_t value) {
  return {.kind = TRIDENT_VALUE_INT, .length = 0, .as = {.i = value}};
}

trident_value float_value(double value) {
  return {.kind = TRIDENT_VALUE_FLOAT, .length = 0, .as = {.f = value}};
}

trident_value bool_value(bool value) {
  return {.kind = TRIDENT_VALUE_BOOL, .length = 0, .as = {.i = value}};
}

trident_value none_value() { return {.kind = TRIDENT_VALUE_NONE, .length = 0, .as = {}}; }

trident_value ints_value(const std::vector<int64_t>& values) {
  return {.kind = TRIDENT_VALUE_INT_LIST,
          .length = static_cast<uint32_t>(values.size()),
          .as = {.ints = values.data()}};
}

trident_value tensors_value(const std::vector<trident_tensor>& values) {
  return {.kind = TRIDENT_VALUE_TENSOR_LIST,
          .length = static_cast<uint32_t>(values.size()),
          .as = {.tensors = values.data()}};
}

std::vector<at::Tensor> call_boxed(const char* name, const std::vector<trident_value>& args,
                                   uint32_t num_results) {
  std::vector<trident_tensor> results(num_results, nullptr);
  BoxedOp::resolve(name).call(args.data(), static_cast<uint32_t>(args.size()), results.data(),
                              num_results);
  std::vector<at::Tensor> tensors;
  for (trident_tensor result : results) tensors.push_back(take(result));
  return tensors;
}

// Host programs run under this guard.
class Aten : public ::testing::Test {
 protected:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

using Typed = Aten;
using Boxed = Aten;

TEST_F(Typed, FunctionalResultIsOwnedAndArgumentsStayBorrowed) {
  const at::Tensor a = at::randn({3, 4}, at::kDouble);
  const at::Tensor b = at::randn({4, 2}, at::kDouble);
  trident_tensor result = nullptr;
  ASSERT_EQ(call_typed("mm", borrow(a), borrow(b), &result), 0);
  EXPECT_EQ(a.use_count(), 1);
  EXPECT_EQ(b.use_count(), 1);
  const at::Tensor product = take(result);
  EXPECT_EQ(product.use_count(), 1);
  EXPECT_TRUE(at::allclose(product, (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)));
}

TEST_F(Typed, OutFormWritesIntoGivenMemory) {
  const at::Tensor a = at::randn({2, 5});
  at::Tensor out = at::empty({2, 5});
  const void* memory = out.data_ptr();
  ASSERT_EQ(call_typed("exp.out", borrow(a), borrow(out)), 0);
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_EQ(out.use_count(), 1);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(out.flatten()[i].item<float>(), std::exp(a.flatten()[i].item<float>()), 1e-5);
  }
}

TEST_F(Typed, SeveralResultsFollowTheSchemaOrder) {
  const at::Tensor a = at::tensor({3.0f, 9.0f, 1.0f, 7.0f});
  trident_tensor values = nullptr;
  trident_tensor indices = nullptr;
  ASSERT_EQ(call_typed("topk", borrow(a), int64_t{2}, int64_t{-1}, int64_t{1}, int64_t{1}, &values,
                       &indices),
            0);
  EXPECT_TRUE(take(values).equal(at::tensor({9.0f, 7.0f})));
  EXPECT_TRUE(take(indices).equal(at::tensor({int64_t{1}, int64_t{3}})));
}

TEST_F(Typed, InPlaceFormBumpsTheVersion) {
  at::Tensor a = at::ones({4});
  const at::Tensor b = at::ones({4});
  const auto before = a._version();
  const trident_scalar alpha{TRIDENT_SCALAR_INT, {.i = 3}};
  ASSERT_EQ(call_typed("add_.Tensor", borrow(a), borrow(b), alpha), 0);
  EXPECT_EQ(a._version(), before + 1);
  EXPECT_TRUE(a.equal(at::full({4}, 4.0)));
}

TEST_F(Typed, ViewSharesStorageAndVersion) {
  const at::Tensor a = at::arange(6, at::kFloat);
  const int64_t sizes[] = {2, -1};
  trident_tensor result = nullptr;
  const int64_t* size = sizes;
  ASSERT_EQ(call_typed("view", borrow(a), size, int64_t{2}, &result), 0);
  at::Tensor view = take(result);
  EXPECT_TRUE(view.is_alias_of(a));
  EXPECT_EQ(view.sizes(), at::IntArrayRef({2, 3}));
  view.add_(1);
  EXPECT_EQ(a._version(), view._version());
  EXPECT_EQ(a[5].item<float>(), 6.0f);
}

TEST_F(Typed, ListOfResultsGoesIntoAnArray) {
  const at::Tensor a = at::arange(7);
  trident_tensor parts[3] = {};
  trident_tensor* results = parts;
  ASSERT_EQ(call_typed("split.Tensor", borrow(a), int64_t{3}, int64_t{0}, results, int64_t{3}), 0);
  EXPECT_TRUE(take(parts[0]).equal(at::arange(3)));
  EXPECT_TRUE(take(parts[1]).equal(at::arange(3, 6)));
  EXPECT_TRUE(take(parts[2]).equal(at::arange(6, 7)));
}

TEST_F(Typed, WrongNumberOfListResultsIsAnError) {
  const at::Tensor a = at::arange(7);
  trident_tensor parts[2] = {};
  trident_tensor* results = parts;
  ASSERT_NE(call_typed("split.Tensor", borrow(a), int64_t{3}, int64_t{0}, results, int64_t{2}), 0);
  EXPECT_EQ(pending_message(), "the operator made 3 tensors where the program expects 2");
  EXPECT_EQ(a.use_count(), 1);
}

TEST_F(Typed, TensorListIsBorrowed) {
  const at::Tensor a = at::ones({1, 2});
  const at::Tensor b = at::zeros({2, 2});
  const trident_tensor list[] = {borrow(a), borrow(b)};
  const trident_tensor* tensors = list;
  at::Tensor out = at::empty({3, 2});
  ASSERT_EQ(call_typed("cat.out", tensors, int64_t{2}, int64_t{0}, borrow(out)), 0);
  EXPECT_EQ(a.use_count(), 1);
  EXPECT_EQ(out.sum().item<float>(), 2.0f);
}

TEST_F(Typed, AbsentTensorsAndNumbersAreNull) {
  const at::Tensor a = at::randn({2, 8}, at::kDouble);
  const int64_t shape[] = {8};
  const int64_t* normalized = shape;
  const trident_tensor absent = nullptr;
  trident_tensor result = nullptr;
  trident_tensor* dropped = nullptr;
  ASSERT_EQ(call_typed("native_layer_norm", borrow(a), normalized, int64_t{1}, absent, absent, 1e-5,
                       &result, dropped, dropped),
            0);
  const at::Tensor centered = a - a.mean(1, true);
  const at::Tensor expected = centered / (centered.pow(2).mean(1, true) + 1e-5).sqrt();
  EXPECT_TRUE(at::allclose(take(result), expected));

  const trident_scalar low{TRIDENT_SCALAR_FLOAT, {.f = -0.5}};
  const trident_scalar* min = &low;
  const trident_scalar* max = nullptr;
  at::Tensor out = at::empty_like(a);
  ASSERT_EQ(call_typed("clamp.out", borrow(a), min, max, borrow(out)), 0);
  EXPECT_TRUE(out.equal(at::where(a < -0.5, at::full_like(a, -0.5), a)));
}

TEST_F(Typed, OptionalTensorListTakesNone) {
  const at::Tensor a = at::arange(6).view({2, 3});
  const at::Tensor columns = at::tensor({int64_t{2}, int64_t{0}});
  const trident_tensor list[] = {nullptr, borrow(columns)};
  const trident_tensor* indices = list;
  trident_tensor result = nullptr;
  ASSERT_EQ(call_typed("index.Tensor", borrow(a), indices, int64_t{2}, &result), 0);
  EXPECT_TRUE(take(result).equal(at::tensor({2, 0, 5, 3}, at::kLong).view({2, 2})));
  EXPECT_EQ(columns.use_count(), 1);
}

TEST_F(Typed, FactoryTakesOptionalEnumsAndDevice) {
  const int64_t sizes[] = {2, 2};
  const int64_t* size = sizes;
  const int64_t dtype_value = static_cast<int64_t>(at::kHalf);
  const int64_t* dtype = &dtype_value;
  const int64_t* none = nullptr;
  const trident_device cpu{static_cast<int32_t>(at::kCPU), -1};
  const trident_device* device = &cpu;
  const trident_scalar value{TRIDENT_SCALAR_FLOAT, {.f = 1.5}};
  trident_tensor result = nullptr;
  ASSERT_EQ(call_typed("full", size, int64_t{2}, value, dtype, none, device, none, &result), 0);
  const at::Tensor tensor = take(result);
  EXPECT_EQ(tensor.scalar_type(), at::kHalf);
  EXPECT_TRUE(tensor.equal(at::full({2, 2}, 1.5, at::kHalf)));
}

TEST_F(Typed, ErrorOfTheOperatorIsLeftPending) {
  const at::Tensor a = at::ones({2, 3});
  trident_tensor result = nullptr;
  ASSERT_NE(call_typed("mm", borrow(a), borrow(a), &result), 0);
  EXPECT_EQ(result, nullptr);
  EXPECT_NE(pending_message().find("mat1 and mat2 shapes cannot be multiplied"), std::string::npos);
  EXPECT_EQ(a.use_count(), 1);
}

TEST(Registry, KnowsNamesDevicesAndSchemas) {
  const TypedOp* op = find_typed("mm.out");
  ASSERT_NE(op, nullptr);
  EXPECT_STREQ(op->schema, "mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)");
  EXPECT_NE(op->cpu, nullptr);
  EXPECT_EQ(find_typed("mm.nothing"), nullptr);
  EXPECT_EQ(resolve_typed("mm.out", "cpu"), op->cpu);
}

TEST(Registry, SaysWhyNothingIsResolved) {
  EXPECT_NE(message_of([] { resolve_typed("mm.nothing", "cpu"); }).find("no typed shim"),
            std::string::npos);
  EXPECT_NE(message_of([] { resolve_typed("mm", "xpu"); }).find("not for \"xpu\""),
            std::string::npos);
  EXPECT_NE(
      message_of([] { resolve_typed("_efficient_attention_forward", "cpu"); }).find("typed shim"),
      std::string::npos);
}

TEST(Registry, LeavesOutWrappersThatCopy) {
  EXPECT_NE(find_typed("embedding"), nullptr);
  EXPECT_EQ(find_typed("embedding.out"), nullptr);
  EXPECT_EQ(find_typed("convolution.out"), nullptr);
  EXPECT_EQ(find_typed("uniform"), nullptr);
  EXPECT_NE(find_typed("uniform_"), nullptr);
}

TEST(Registry, SchemasAreThoseOfTheRunningTorch) {
  for (const TypedOp& op : typed_ops()) {
    const std::string_view full = op.name;
    const size_t dot = full.find('.');
    const c10::OperatorName name("aten::" + std::string(full.substr(0, dot)),
                                 dot == full.npos ? "" : std::string(full.substr(dot + 1)));
    ASSERT_TRUE(c10::Dispatcher::singleton().findSchema(name).has_value()) << op.name;
  }
}

TEST_F(Boxed, TakesScalarsAndOptionals) {
  const at::Tensor a = at::tensor({-2.0f, 0.5f, 3.0f});
  const auto results =
      call_boxed("aten::clamp", {tensor_value(a), none_value(), float_value(1.0)}, 1);
  EXPECT_TRUE(results[0].equal(at::tensor({-2.0f, 0.5f, 1.0f})));
  EXPECT_EQ(results[0].use_count(), 1);
  EXPECT_EQ(a.use_count(), 1);
  const auto sums =
      call_boxed("aten::add.Tensor", {tensor_value(a), tensor_value(a), int_value(2)}, 1);
  EXPECT_TRUE(sums[0].equal(a * 3));
}

TEST_F(Boxed, TakesListsEnumsAndStrings) {
  const at::Tensor a = at::randn({4, 3});
  const std::vector<int64_t> dims = {1};
  const auto sums = call_boxed("aten::sum.dim_IntList",
                               {tensor_value(a), ints_value(dims), bool_value(true),
                                int_value(static_cast<int64_t>(at::kDouble))},
                               1);
  EXPECT_EQ(sums[0].scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(sums[0], a.to(at::kDouble).sum(1, true)));

  trident_value approximate{.kind = TRIDENT_VALUE_STRING, .length = 0, .as = {.string = "tanh"}};
  const auto activated = call_boxed("aten::gelu", {tensor_value(a), approximate}, 1);
  EXPECT_TRUE(activated[0].equal(at::gelu(a, "tanh")));

  const auto whole =
      call_boxed("aten::sum.dim_IntList",
                 {tensor_value(a), ints_value({}), bool_value(false), none_value()}, 1);
  EXPECT_TRUE(at::allclose(whole[0], a.sum()));
}

TEST_F(Boxed, TakesTensorListsWithAndWithoutNone) {
  const at::Tensor a = at::arange(4).view({2, 2});
  const auto stacked =
      call_boxed("aten::cat", {tensors_value({borrow(a), borrow(a)}), int_value(1)}, 1);
  EXPECT_TRUE(stacked[0].equal(at::tensor({0, 1, 0, 1, 2, 3, 2, 3}, at::kLong).view({2, 4})));
  const at::Tensor index = at::tensor({int64_t{1}});
  const auto picked = call_boxed("aten::index.Tensor",
                                 {tensor_value(a), tensors_value({nullptr, borrow(index)})}, 1);
  EXPECT_TRUE(picked[0].equal(at::tensor({1, 3}, at::kLong).view({2, 1})));
}

TEST_F(Boxed, SingleIntFillsAFixedList) {
  const at::Tensor a = at::randn({1, 1, 4, 4});
  const auto pooled = call_boxed("aten::avg_pool2d",
                                 {tensor_value(a), int_value(2), int_value(2), int_value(0),
                                  bool_value(false), bool_value(true), none_value()},
                                 1);
  EXPECT_TRUE(at::allclose(pooled[0], a.unfold(2, 2, 2).unfold(3, 2, 2).mean({4, 5})));
}

TEST_F(Boxed, NumberInPlaceOfATensorPromotesLikeANumber) {
  const at::Tensor a = at::ones({2}, at::kHalf);
  const auto sums =
      call_boxed("aten::add.Tensor", {tensor_value(a), float_value(0.5), int_value(1)}, 1);
  EXPECT_EQ(sums[0].scalar_type(), at::kHalf);
  EXPECT_TRUE(sums[0].equal(at::full({2}, 1.5, at::kHalf)));
}

TEST_F(Boxed, ListResultsAreFlattened) {
  const at::Tensor a = at::arange(4);
  const auto parts =
      call_boxed("aten::split.Tensor", {tensor_value(a), int_value(3), int_value(0)}, 2);
  EXPECT_TRUE(parts[0].equal(at::arange(3)));
  EXPECT_TRUE(parts[1].equal(at::arange(3, 4)));
}

TEST_F(Boxed, InPlaceAndOutFormsReturnNothing) {
  at::Tensor a = at::zeros({3});
  const auto before = a._version();
  const at::Tensor index = at::tensor({int64_t{1}});
  const at::Tensor source = at::tensor({5.0f});
  call_boxed("aten::index_copy_",
             {tensor_value(a), int_value(0), tensor_value(index), tensor_value(source)}, 0);
  EXPECT_TRUE(a.equal(at::tensor({0.0f, 5.0f, 0.0f})));
  EXPECT_GT(a._version(), before);
  at::Tensor out = at::empty({3});
  call_boxed("aten::neg.out", {tensor_value(a), tensor_value(out)}, 0);
  EXPECT_TRUE(out.equal(-a));
}

TEST_F(Boxed, UndefinedResultIsNull) {
  const at::Tensor a = at::randn({1, 2, 4, 4});
  const at::Tensor weight = at::randn({2, 2, 3, 3});
  const at::Tensor grad = at::randn({1, 2, 2, 2});
  const std::vector<int64_t> one = {1, 1};
  const std::vector<int64_t> zero = {0, 0};
  const std::vector<int64_t> mask_bits = {1, 0, 0};
  const trident_value mask{
      .kind = TRIDENT_VALUE_BOOL_LIST, .length = 3, .as = {.ints = mask_bits.data()}};
  const auto grads = call_boxed(
      "aten::convolution_backward",
      {tensor_value(grad), tensor_value(a), tensor_value(weight), none_value(), ints_value(one),
       ints_value(zero), ints_value(one), bool_value(false), ints_value(zero), int_value(1), mask},
      3);
  EXPECT_TRUE(grads[0].defined());
  EXPECT_FALSE(grads[1].defined());
}

TEST_F(Boxed, WrongArgumentsAreNamed) {
  const at::Tensor a = at::ones({2});
  EXPECT_EQ(message_of([&] { call_boxed("aten::relu", {}, 1); }),
            "aten::relu takes 1 arguments, got 0");
  EXPECT_EQ(message_of([&] { call_boxed("aten::relu", {ints_value({1})}, 1); }),
            "aten::relu: argument 'self' must be a tensor or a number, not a list of ints");
  EXPECT_EQ(message_of([&] {
              call_boxed("aten::select.int", {tensor_value(a), float_value(0), int_value(0)}, 1);
            }),
            "aten::select.int: argument 'dim' must be an int, not a float");
  EXPECT_EQ(
      message_of([&] { call_boxed("aten::cat", {tensors_value({nullptr}), int_value(0)}, 1); }),
      "argument 'tensors' has None at position 0 where a tensor is expected");
  EXPECT_EQ(message_of([&] { call_boxed("aten::relu", {tensor_value(a)}, 2); }),
            "aten::relu returned 1 tensors where the program expects 2");
  EXPECT_EQ(a.use_count(), 1);
}

TEST_F(Boxed, WhatCannotBeCalledIsRefusedWhenResolved) {
  EXPECT_NE(
      message_of([] { BoxedOp::resolve("aten::no_such_operator"); }).find("there is no operator"),
      std::string::npos);
  EXPECT_NE(message_of([] { BoxedOp::resolve("relu"); }).find("does not name an operator"),
            std::string::npos);
  EXPECT_NE(
      message_of([] { BoxedOp::resolve("aten::item"); }).find("only tensors can be passed on"),
      std::string::npos);
  EXPECT_NE(message_of([] {
              BoxedOp::resolve("aten::set_.source_Storage");
            }).find("parameter 'source' has type Storage"),
            std::string::npos);
}

}  // namespace
}  // namespace trident::aten
