// Host tensor descriptors: the CUtensorMap that a kernel takes by value for each of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trident::driver {

class CudaLibrary;

inline constexpr size_t kMaxTensorMapRank = 5;

// What is fixed about one descriptor of a kernel. The slot of parameter `param` holds the address;
// the sizes (int32) and then the strides (int64) are the parameters behind it, one per axis, in
// elements.
struct TensorMapSpec {
  uint32_t param = 0;
  int32_t swizzle = 0;       // CUtensorMapSwizzle
  int32_t element_type = 0;  // CUtensorMapDataType
  uint32_t element_bytes = 0;
  bool nan_fill = false;          // what loads outside of the tensor give, instead of 0
  bool packed_fp4 = false;        // two elements per byte: the innermost size counts bytes
  std::vector<uint32_t> block{};  // as Triton's metadata gives it, outermost axis first
};

// One encoded map, kept for as long as address, sizes and strides stay what they were.
class TensorMap {
 public:
  // Encodes anew where `values`, the launch's slots, differ from the last time. A RuntimeError that
  // reads like Triton's own where the driver refuses.
  void update(const CudaLibrary& library, const TensorMapSpec& spec, const uint64_t* values,
              const std::string& label);

  // The 128 bytes that the kernel takes. CUDA 12 asks for an alignment of 64, CUDA 13 of 128.
  void* bytes() { return map_.data(); }

 private:
  void encode(const CudaLibrary& library, const TensorMapSpec& spec, const std::string& label);

  alignas(128) std::array<std::byte, 128> map_{};
  std::array<uint64_t, 1 + 2 * kMaxTensorMapRank> seen_{};  // address, sizes, strides
  bool encoded_ = false;
};

}  // namespace trident::driver
