// What is read of tensors in place agrees with what PyTorch's functions give.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "guards/tensor_facts.h"

namespace trident::guards {
namespace {

std::string facts_of(const at::Tensor& tensor) {
  return {TensorMembers::facts(*tensor.unsafeGetTensorImpl()), kTensorFactBytes};
}

const c10::AutogradMetaInterface* autograd_of(const at::Tensor& tensor) {
  return TensorMembers::autograd(*tensor.unsafeGetTensorImpl());
}

TEST(TensorMembers, autograd_is_the_metadata_that_the_function_gives) {
  at::Tensor tensor = at::ones({2, 3});
  EXPECT_EQ(autograd_of(tensor), tensor.unsafeGetTensorImpl()->autograd_meta());
  tensor.set_requires_grad(true);
  EXPECT_NE(autograd_of(tensor), nullptr);
  EXPECT_EQ(autograd_of(tensor), tensor.unsafeGetTensorImpl()->autograd_meta());
  EXPECT_TRUE(requires_grad(*tensor.unsafeGetTensorImpl()));
  EXPECT_FALSE(requires_grad(*at::ones({2}).unsafeGetTensorImpl()));
  EXPECT_TRUE(requires_grad(*tensor.view({3, 2}).unsafeGetTensorImpl()));
}

TEST(TensorMembers, storage_is_the_tensors) {
  const at::Tensor tensor = at::ones({4}).slice(0, 1);
  EXPECT_EQ(TensorMembers::storage(*tensor.unsafeGetTensorImpl()).unsafeGetStorageImpl(),
            tensor.storage().unsafeGetStorageImpl());
}

TEST(TensorMembers, facts_differ_where_the_geometry_does) {
  const at::Tensor tensor = at::ones({2, 3});
  EXPECT_EQ(facts_of(tensor), facts_of(at::zeros({2, 3})));
  EXPECT_NE(facts_of(tensor), facts_of(at::ones({3, 2})));
  EXPECT_NE(facts_of(tensor), facts_of(at::ones({3, 2}).t()));
  EXPECT_NE(facts_of(tensor), facts_of(at::ones({2, 3}, at::kHalf)));
  EXPECT_NE(facts_of(tensor), facts_of(at::ones({3, 3}).slice(0, 1)));
  at::Tensor changed = at::ones({2, 3});
  changed.unsqueeze_(0);
  EXPECT_NE(facts_of(tensor), facts_of(changed));
}

}  // namespace
}  // namespace trident::guards
