// The cpu backend: a launch calls the kernel's Python source in Triton's interpreter.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/kernel.h"

namespace trident::driver {

class CpuLaunch;

// `run` is called as run(grid, values): the grid as three ints, one value per parameter. Pointers
// are addresses; integers, bools and floats have the value that the compiled kernel would read.
class CpuKernel final : public Kernel {
 public:
  using Launch = CpuLaunch;
  static constexpr Backend kBackend = Backend::kCpu;

  // Takes a reference to `run`; the caller holds the interpreter lock.
  CpuKernel(PyObject* run, std::string label, std::vector<std::string> params);
  ~CpuKernel() override;

  void load(int device) override {}
  PyObject* run() const { return run_; }

 private:
  PyObject* run_;
};

class CpuLaunch {
 public:
  CpuLaunch(CpuKernel& kernel, int device, const uint64_t* values)
      : kernel_(&kernel), values_(values) {}

  // Takes the interpreter lock for the call. A Python exception leaves as python_error.
  void run(const uint32_t* grid, void* stream);

 private:
  CpuKernel* kernel_;
  const uint64_t* values_;
};

}  // namespace trident::driver
