// What every compiled kernel variant has, whichever backend launches it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trident::driver {

enum class Backend { kCuda, kCpu };

// How the 64-bit slot of one launch parameter is to be read.
enum class ParamKind : uint8_t {
  kPointer,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kTensorMap,  // the address of a host tensor descriptor's tensor; sizes and strides follow
};

// The kind that Triton's type string names ("*fp32", "i32", "u1"), or "nvTmaDesc"; ValueError for any other.
ParamKind parse_param(std::string_view type);

// A kernel that asks for more than its device has; what Triton raises as OutOfResources.
class OutOfResources : public std::runtime_error {
 public:
  OutOfResources(const std::string& label, std::string resource, int64_t required, int64_t limit);
  const std::string& resource() const { return resource_; }
  int64_t required() const { return required_; }
  int64_t limit() const { return limit_; }

 private:
  std::string resource_;
  int64_t required_;
  int64_t limit_;
};

// One compiled variant of a Triton kernel. Shared by all programs that launch it.
class Kernel {
 public:
  Kernel(Backend backend, std::string label, std::vector<std::string> params);
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // Makes the kernel ready on a device, so that no launch has to. Errors are the device's.
  virtual void load(int device) = 0;

  Backend backend() const { return backend_; }
  const std::string& label() const { return label_; }
  const std::vector<std::string>& params() const { return params_; }
  const std::vector<ParamKind>& kinds() const { return kinds_; }

 private:
  Backend backend_;
  std::string label_;
  std::vector<std::string> params_;
  std::vector<ParamKind> kinds_;
};

// True where a grid has no programs, which is no launch and no error. A dimension of 2^31 or more,
// which is how a negative one arrives, is an error.
bool grid_is_empty(const uint32_t* grid, const Kernel& kernel);

// "(4, 1, 1)", for messages.
std::string grid_text(const uint32_t* grid);

}  // namespace trident::driver
