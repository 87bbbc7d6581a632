#include "driver/tensor_map.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "driver/cuda.h"

namespace trident::driver {

void TensorMap::update(const CudaLibrary& library, const TensorMapSpec& spec,
                       const uint64_t* values, const std::string& label) {
  const uint64_t* const first = values + spec.param;
  const size_t count = 1 + 2 * spec.block.size();
  if (encoded_ && std::equal(first, first + count, seen_.begin())) [[likely]]
    return;
  encoded_ = false;
  std::copy_n(first, count, seen_.begin());
  encode(library, spec, label);
  encoded_ = true;
}

void TensorMap::encode(const CudaLibrary& library, const TensorMapSpec& spec,
                       const std::string& label) {
  const size_t rank = spec.block.size();
  const uint64_t* const sizes_of_triton = seen_.data() + 1;
  const uint64_t* const strides_of_triton = sizes_of_triton + rank;
  // CUDA counts axes from the innermost one, and has no stride for that.
  std::array<uint64_t, kMaxTensorMapRank> sizes{};
  std::array<uint64_t, kMaxTensorMapRank> strides{};
  std::array<uint32_t, kMaxTensorMapRank> block{};
  constexpr std::array<uint32_t, kMaxTensorMapRank> kDense = {1, 1, 1, 1, 1};
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t from_inside = rank - 1 - axis;
    sizes[from_inside] = static_cast<uint32_t>(sizes_of_triton[axis]);
    block[from_inside] = spec.block[axis];
    if (from_inside > 0) strides[from_inside - 1] = strides_of_triton[axis] * spec.element_bytes;
  }
  if (spec.packed_fp4) sizes[0] *= 2;
  const auto encode_tiled = library.api().tensor_map_encode_tiled;
  TORCH_CHECK(encode_tiled != nullptr, "kernel ", label,
              " takes a host tensor descriptor, and libcuda.so.1 has no cuTensorMapEncodeTiled");
  const cuda::Result result = encode_tiled(
      map_.data(), spec.element_type, static_cast<uint32_t>(rank),
      reinterpret_cast<void*>(seen_[0]), sizes.data(), strides.data(), block.data(), kDense.data(),
      cuda::kTensorMapInterleaveNone, spec.swizzle, cuda::kTensorMapPromoteL2To128Bytes,
      spec.nan_fill ? cuda::kTensorMapFillNan : cuda::kTensorMapFillNone);
  library.check(result, "cuTensorMapEncodeTiled",
                "Failed to create tensor map descriptor: kernel " + label);
}

}  // namespace trident::driver
