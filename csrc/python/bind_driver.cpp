// Python's view of the driver seam: `_C.Kernel` and `_C.cuda_available()`.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "driver/driver.h"
#include "python/errors.h"

namespace trident::python {

namespace py = pybind11;

namespace {

using driver::CpuKernel;
using driver::CudaKernel;
using driver::Kernel;

// The members of driver::TensorMapSpec, in order.
using TensorMapTuple =
    std::tuple<uint32_t, int32_t, int32_t, uint32_t, bool, bool, std::vector<uint32_t>>;

std::shared_ptr<Kernel> make_cuda(const py::bytes& cubin, std::string name, std::string label,
                                  std::vector<std::string> params, uint32_t shared,
                                  uint32_t num_warps, uint32_t num_ctas,
                                  std::array<uint32_t, 3> cluster, bool launch_pdl,
                                  bool cooperative, uint64_t global_scratch_size,
                                  uint64_t global_scratch_align, uint64_t profile_scratch_size,
                                  uint64_t profile_scratch_align,
                                  const std::vector<TensorMapTuple>& tensor_maps) {
  std::vector<driver::TensorMapSpec> maps;
  for (const auto& [param, swizzle, type, bytes, nan_fill, packed_fp4, block] : tensor_maps) {
    maps.push_back({.param = param,
                    .swizzle = swizzle,
                    .element_type = type,
                    .element_bytes = bytes,
                    .nan_fill = nan_fill,
                    .packed_fp4 = packed_fp4,
                    .block = block});
  }
  return translated([&]() -> std::shared_ptr<Kernel> {
    return std::make_shared<CudaKernel>(driver::CudaLibrary::instance(),
                                        driver::CudaKernelSpec{
                                            .cubin = std::string(cubin),
                                            .name = std::move(name),
                                            .label = std::move(label),
                                            .params = std::move(params),
                                            .shared = shared,
                                            .num_warps = num_warps,
                                            .num_ctas = num_ctas,
                                            .cluster = cluster,
                                            .launch_pdl = launch_pdl,
                                            .cooperative = cooperative,
                                            .global_scratch_size = global_scratch_size,
                                            .global_scratch_align = global_scratch_align,
                                            .profile_scratch_size = profile_scratch_size,
                                            .profile_scratch_align = profile_scratch_align,
                                            .tensor_maps = std::move(maps),
                                        });
  });
}

std::shared_ptr<Kernel> make_interpreted(const py::function& run, std::string label,
                                         std::vector<std::string> params) {
  return translated([&]() -> std::shared_ptr<Kernel> {
    return std::make_shared<CpuKernel>(run.ptr(), std::move(label), std::move(params));
  });
}

const char* driver_name(const Kernel& kernel) {
  return kernel.backend() == driver::Backend::kCuda ? "cuda" : "cpu";
}

}  // namespace

void bind_driver(py::module_& m) {
  py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel",
                                              "One compiled variant of a Triton kernel.")
      .def_static(
          "cuda", &make_cuda, py::arg("cubin"), py::arg("name"), py::kw_only(), py::arg("label"),
          py::arg("params"), py::arg("shared"), py::arg("num_warps"), py::arg("num_ctas"),
          py::arg("cluster"), py::arg("launch_pdl"), py::arg("cooperative"),
          py::arg("global_scratch_size"), py::arg("global_scratch_align"),
          py::arg("profile_scratch_size"), py::arg("profile_scratch_align"),
          py::arg("tensor_maps") = std::vector<TensorMapTuple>(),
          "A variant from its cubin; `name` is the function in it. `params` are Triton's type "
          "strings in\n"
          "order, without constexprs. `shared` is the dynamic shared memory in bytes; scratch "
          "sizes are\n"
          "bytes per program. `tensor_maps` has one entry per parameter of type \"nvTmaDesc\": "
          "(parameter,\n"
          "swizzle, element type, bytes per element, fill with NaN, packed fp4, block sizes). The "
          "cubin is loaded when a program that uses it is.\n"
          "Raises RuntimeError without a CUDA driver, ValueError for an unknown parameter type.")
      .def_static("interpreted", &make_interpreted, py::arg("run"), py::kw_only(), py::arg("label"),
                  py::arg("params"),
                  "A variant that calls `run(grid, values)`: three ints, and one int, bool or "
                  "float per parameter,\n"
                  "pointers as addresses. Raises ValueError for an unknown parameter type.")
      .def(
          "load",
          [](Kernel& kernel, int device) {
            translated([&] {
              const py::gil_scoped_release unlocked;
              kernel.load(device);
              return 0;
            });
          },
          py::arg("device"), "Makes it ready on a device, so that no launch has to.")
      .def_property_readonly("label", &Kernel::label)
      .def_property_readonly("params", &Kernel::params)
      .def_property_readonly("driver", &driver_name, "\"cuda\" or \"cpu\"");

  m.def(
      "cuda_available", [] { return driver::CudaLibrary::available(); },
      "Whether the CUDA driver can be loaded and sees a device.");
}

}  // namespace trident::python
