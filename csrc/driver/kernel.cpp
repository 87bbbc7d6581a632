// Parameter types, grids and errors that all backends share.
#include "driver/kernel.h"

#include <c10/util/Exception.h>

#include <array>
#include <limits>
#include <utility>

namespace trident::driver {
namespace {

constexpr std::array<std::pair<std::string_view, ParamKind>, 16> kTypes = {{
    {"i1", ParamKind::kBool},
    {"u1", ParamKind::kBool},
    {"i8", ParamKind::kInt8},
    {"i16", ParamKind::kInt16},
    {"i32", ParamKind::kInt32},
    {"i64", ParamKind::kInt64},
    {"u8", ParamKind::kUint8},
    {"u16", ParamKind::kUint16},
    {"u32", ParamKind::kUint32},
    {"u64", ParamKind::kUint64},
    {"fp16", ParamKind::kFloat16},
    {"bf16", ParamKind::kBfloat16},
    {"fp32", ParamKind::kFloat32},
    {"f32", ParamKind::kFloat32},
    {"fp64", ParamKind::kFloat64},
    {"nvTmaDesc", ParamKind::kTensorMap},
}};

}  // namespace

ParamKind parse_param(std::string_view type) {
  if (!type.empty() && type.front() == '*') return ParamKind::kPointer;
  for (const auto& [name, kind] : kTypes) {
    if (name == type) return kind;
  }
  TORCH_CHECK_VALUE(false, "Trident cannot pass a kernel parameter of Triton type '",
                    std::string(type), "'");
}

OutOfResources::OutOfResources(const std::string& label, std::string resource, int64_t required,
                               int64_t limit)
    : std::runtime_error("out of resource: " + resource + ", Required: " +
                         std::to_string(required) + ", Hardware limit: " + std::to_string(limit) +
                         " (kernel " + label + "). Reducing block sizes or `num_stages` may help."),
      resource_(std::move(resource)),
      required_(required),
      limit_(limit) {}

Kernel::Kernel(Backend backend, std::string label, std::vector<std::string> params)
    : backend_(backend), label_(std::move(label)), params_(std::move(params)) {
  kinds_.reserve(params_.size());
  for (const std::string& type : params_) kinds_.push_back(parse_param(type));
}

bool grid_is_empty(const uint32_t* grid, const Kernel& kernel) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return true;
  constexpr uint32_t limit = std::numeric_limits<int32_t>::max();
  if (grid[0] > limit || grid[1] > limit || grid[2] > limit) [[unlikely]] {
    TORCH_CHECK(false, "kernel ", kernel.label(), " cannot be launched over the grid ",
                grid_text(grid), ": a dimension is negative or too large");
  }
  return false;
}

std::string grid_text(const uint32_t* grid) {
  const auto dimension = [grid](int axis) {
    return std::to_string(static_cast<int32_t>(grid[axis]));
  };
  return "(" + dimension(0) + ", " + dimension(1) + ", " + dimension(2) + ")";
}

}  // namespace trident::driver
