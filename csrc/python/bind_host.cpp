// Python's view of host programs: `_C.Program`, and the memory that idle arenas hold.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "host/graph_replay.h"
#include "host/program.h"
#include "python/errors.h"

namespace trident::python {

namespace py = pybind11;

namespace {

using host::Program;

std::shared_ptr<Program> load(const std::string& path,
                              std::vector<std::shared_ptr<driver::Kernel>> kernels) {
  return translated([&] {
    const py::gil_scoped_release unlocked;
    return Program::load(path, std::move(kernels));
  });
}

std::vector<trident_tensor> borrow(const py::sequence& inputs) {
  std::vector<trident_tensor> tensors;
  tensors.reserve(inputs.size());
  for (const py::handle input : inputs) {
    TORCH_CHECK_TYPE(THPVariable_Check(input.ptr()), "input ", tensors.size(), " is a ",
                     Py_TYPE(input.ptr())->tp_name, ", not a tensor");
    tensors.push_back(host::wrap(THPVariable_Unpack(input.ptr()).unsafeGetTensorImpl()));
  }
  return tensors;
}

py::list run(Program& program, const py::sequence& inputs, const std::vector<int64_t>& symbols) {
  return translated([&] {
    const py::tuple alive(inputs);  // the sequence may change while the lock is released
    const std::vector<trident_tensor> tensors = borrow(alive);
    TORCH_CHECK_VALUE(
        tensors.size() == program.num_inputs() && symbols.size() == program.num_symbols(),
        "program ", program.name(), " takes ", program.num_inputs(), " inputs and ",
        program.num_symbols(), " symbols, not ", tensors.size(), " and ", symbols.size());
    std::vector<host::TensorRef> outputs;
    {
      const py::gil_scoped_release unlocked;
      program.run(tensors.data(), symbols.data(), outputs);
    }
    py::list result(outputs.size());
    for (size_t index = 0; index < outputs.size(); ++index) {
      PyObject* const output = THPVariable_Wrap(at::TensorBase(std::move(outputs[index])));
      if (output == nullptr) throw py::error_already_set();
      PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(index), output);
    }
    return result;
  });
}

std::vector<host::TensorRef> share(const py::sequence& tensors) {
  std::vector<host::TensorRef> shared;
  for (const trident_tensor tensor : borrow(tensors)) {
    shared.push_back(host::TensorRef::reclaim_copy(host::unwrap(tensor)));
  }
  return shared;
}

std::shared_ptr<host::GraphReplay> make_replay(uintptr_t exec, int device,
                                               const py::sequence& inputs,
                                               const std::vector<bool>& staged,
                                               const std::vector<bool>& written,
                                               const py::sequence& outputs) {
  return translated([&] {
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    return std::make_shared<host::GraphReplay>(
        driver::CudaLibrary::instance(), reinterpret_cast<void*>(exec),
        c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getStream(place), share(inputs),
        staged, written, share(outputs));
  });
}

bool guard(const Program& program, const std::vector<int64_t>& symbols) {
  return translated([&] {
    TORCH_CHECK_VALUE(symbols.size() == program.num_symbols(), "program ", program.name(), " has ",
                      program.num_symbols(), " symbols, not ", symbols.size());
    return program.guard(symbols.data());
  });
}

}  // namespace

void bind_host(py::module_& m) {
  py::class_<Program, std::shared_ptr<Program>>(m, "Program", "A loaded host program.")
      .def_static("load", &load, py::arg("path"), py::arg("kernels"),
                  "Loads the shared library at `path`, whose launches use `kernels` by index.\n"
                  "Raises RuntimeError for a library that is not a host program of this version, "
                  "or whose tables\n"
                  "do not fit the kernels.")
      .def("run", &run, py::arg("inputs"), py::arg("symbols") = std::vector<int64_t>(),
           "Runs on the current stream of the program's device and returns the outputs. Raises "
           "what the\n"
           "operators and kernels raise; TypeError or ValueError for inputs that do not fit the "
           "program.")
      .def("guard", &guard, py::arg("symbols"),
           "Whether the residual guard holds for these values.")
      .def_property_readonly("name", &Program::name)
      .def_property_readonly("num_inputs", &Program::num_inputs)
      .def_property_readonly("num_outputs", &Program::num_outputs)
      .def_property_readonly("num_symbols", &Program::num_symbols)
      .def_property_readonly("launches", &Program::launches, "Triton launches per run")
      .def_property_readonly("calls_typed", &Program::calls_typed,
                             "operator calls per run through typed shims")
      .def_property_readonly("calls_boxed", &Program::calls_boxed,
                             "operator calls per run through the dispatcher")
      .def_property_readonly("arena_bytes", &Program::arena_bytes);

  py::class_<host::GraphReplay, std::shared_ptr<host::GraphReplay>>(
      m, "GraphReplay", "A host program captured into a CUDA graph.")
      .def(
          py::init(&make_replay), py::arg("exec"), py::arg("device"), py::arg("inputs"),
          py::arg("staged"), py::arg("written"), py::arg("outputs"),
          "`exec`: the graph's cudaGraphExec_t. It serves calls on the stream that is current now.")
      .def_property_readonly("replays", &host::GraphReplay::replays);

  m.def(
      "release_arenas",
      [] {
        const py::gil_scoped_release unlocked;
        host::ArenaPool::instance().clear();
      },
      "Gives the memory of idle arenas back to PyTorch's allocator.");
  m.def(
      "idle_arena_bytes", [] { return host::ArenaPool::instance().idle_bytes(); },
      "Bytes that arenas hold between calls.");
}

}  // namespace trident::python
