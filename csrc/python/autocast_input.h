// Casts of weights that autocast keeps between calls.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>

namespace trident::python {

// An input of a program that is the cast of a tensor. Eager keeps the casts of float32 leaves that
// require grad for as long as the outermost autocast region lasts, whatever becomes of them meanwhile;
// calls of a program take and leave them in the same place, so that both see the same values.
struct AutocastInput {
  // For code that turned the cache on, whatever it is outside.
  static at::Tensor cached_cast(c10::ScalarType dtype, const at::Tensor& tensor) {
    const struct CacheOn {
      bool before = at::autocast::is_autocast_cache_enabled();
      CacheOn() { at::autocast::set_autocast_cache_enabled(true); }
      ~CacheOn() { at::autocast::set_autocast_cache_enabled(before); }
    } cache_on;
    return at::autocast::cached_cast(dtype, tensor, tensor.device().type());
  }

  size_t input;  // its position
  c10::ScalarType dtype;
  bool grad;  // made where grad mode is on

  // Autocast's cast, made now if it keeps none.
  at::Tensor cached(const at::Tensor& tensor) const {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
    const c10::AutoGradMode mode(grad);
    return cached_cast(dtype, tensor);
  }

  // A cast of the same geometry that is not kept.
  at::Tensor fresh(const at::Tensor& tensor) const {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
    const c10::AutoGradMode mode(false);
    return tensor.to(dtype);
  }
};

}  // namespace trident::python
