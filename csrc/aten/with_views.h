// Programs run below ADInplaceOrView, as the kernels of most operators do in eager: views that a kernel
// takes on the way are not recorded. Operators that write or hand out views run with it, so that it
// keeps versions and view metadata.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "abi/error.h"

namespace trident::aten {

class WithViews {
 public:
  WithViews() : WithViews(c10::impl::tls_local_dispatch_key_set()) {}

 private:
  explicit WithViews(const c10::impl::LocalDispatchKeySet& now)
      : guard_(now.included_, now.excluded_.remove(c10::DispatchKey::ADInplaceOrView)) {}

  c10::impl::ForceDispatchKeyGuard guard_;
};

// `abi::guarded` for such an operator.
template <typename Body>
inline trident_status guarded_with_views(Body&& body) noexcept {
  return abi::guarded([&] {
    const WithViews with_views;
    std::forward<Body>(body)();
  });
}

}  // namespace trident::aten
