// Choosing and publishing kernel variants.
#include "host/variants.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "host/validate.h"

namespace trident::host {

const Variant& Variants::add(uint32_t launch, uint64_t choice, Variant variant) {
  validate_variant(program_, launch, variant);
  variant.kernel->load(device_);
  const std::unique_lock lock(mutex_);
  return variants_.try_emplace({launch, choice}, std::move(variant)).first->second;
}

const Variant* Variants::find(uint32_t launch, uint64_t choice) const {
  const std::shared_lock lock(mutex_);
  const auto found = variants_.find({launch, choice});
  return found == variants_.end() ? nullptr : &found->second;
}

const Variant& Variants::make(uint32_t launch, uint64_t choice) {
  TORCH_CHECK(source_, "program ", program_.name, ": launch ", launch,
              " needs another variant of its kernel, and nothing compiles it");
  return add(launch, choice, source_(launch, choice));
}

size_t Variants::size() const {
  const std::shared_lock lock(mutex_);
  return variants_.size();
}

bool VaryingLaunch::choose(uint64_t choice) {
  if (current_ < made_.size() && made_[current_].choice == choice) return false;
  const auto known = std::find_if(made_.begin(), made_.end(),
                                  [choice](const Made& made) { return made.choice == choice; });
  current_ = static_cast<size_t>(known - made_.begin());
  if (known != made_.end()) return false;

  const Variant* variant = variants_->find(index_, choice);
  const bool missing = variant == nullptr;
  if (missing) variant = &variants_->make(index_, choice);
  std::vector<uint64_t> values(variant->params.size(), 0);
  driver::Launch launch = driver::make_launch(*variant->kernel, device_, values.data());
  made_.push_back({choice, variant, std::move(values), std::move(launch)});
  return missing;
}

void VaryingLaunch::run(const uint32_t* grid, void* stream) {
  Made& made = made_[current_];
  for (size_t index = 0; index < made.values.size(); ++index) {
    made.values[index] = values_[made.variant->params[index]];
  }
  driver::run_launch(made.launch, grid, stream);
}

}  // namespace trident::host
