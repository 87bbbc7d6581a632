// The variants of the kernels that a program chooses per call, and the launches that use them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "abi/abi.h"
#include "driver/driver.h"

namespace trident::host {

// What Triton compiles for one choice of a launch's facts.
struct Variant {
  std::shared_ptr<driver::Kernel> kernel;
  std::vector<uint32_t> params;  // which of the launch record's parameters the kernel takes
};

// The table of a program: per launch, from the facts that hold to the variant. Variants are never
// removed, so that what is found stays valid. Lookups do not wait for compilations.
class Variants {
 public:
  // Compiles the variant of a launch for which these facts hold.
  using Source = std::function<Variant(uint32_t launch, uint64_t choice)>;

  // `program` lives as long as the table; kernels are loaded on `device`.
  Variants(const trident_program& program, int device) : program_(program), device_(device) {}

  // Set once, before the program runs.
  void set_source(Source source) { source_ = std::move(source); }

  // Publishes a variant. Another one for the same choice stays. A mistake is a RuntimeError.
  const Variant& add(uint32_t launch, uint64_t choice, Variant variant);

  // The variant for a choice, or nullptr.
  const Variant* find(uint32_t launch, uint64_t choice) const;

  // Has the source compile a variant and publishes it; its errors are passed on.
  const Variant& make(uint32_t launch, uint64_t choice);

  size_t size() const;

 private:
  const trident_program& program_;
  int device_;
  Source source_;
  mutable std::shared_mutex mutex_;
  std::map<std::pair<uint32_t, uint64_t>, Variant> variants_;
};

// One launch of a frame whose variant is chosen per call.
class VaryingLaunch {
 public:
  // Reads parameters from `values`, those of the launch record, which outlive the launch.
  VaryingLaunch(Variants& variants, uint32_t index, int device, const uint64_t* values)
      : variants_(&variants), index_(index), device_(device), values_(values) {}

  // Makes the variant for these facts the current one. Returns whether it had to be compiled.
  bool choose(uint64_t choice);

  void run(const uint32_t* grid, void* stream);

  // Of the current variant.
  const driver::Launch& launch() const { return made_[current_].launch; }
  const std::vector<uint32_t>& params() const { return made_[current_].variant->params; }

 private:
  // A launch of one variant, over parameters of its own.
  struct Made {
    uint64_t choice;
    const Variant* variant;
    std::vector<uint64_t> values;
    driver::Launch launch;
  };

  Variants* variants_;
  uint32_t index_;
  int device_;
  const uint64_t* values_;
  std::vector<Made> made_;
  size_t current_ = 0;
};

}  // namespace trident::host
