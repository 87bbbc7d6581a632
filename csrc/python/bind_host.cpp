// Python's view of host programs: `_C.Program`, and the memory that idle arenas hold.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/captured_copy.h"
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

// The inputs of a run; TypeError or ValueError where they do not fit the program.
std::vector<trident_tensor> borrow(const Program& program, const py::tuple& inputs,
                                   const std::vector<int64_t>& symbols) {
  std::vector<trident_tensor> tensors;
  tensors.reserve(inputs.size());
  for (const py::handle input : inputs) {
    TORCH_CHECK_TYPE(THPVariable_Check(input.ptr()), "input ", tensors.size(), " is a ",
                     Py_TYPE(input.ptr())->tp_name, ", not a tensor");
    tensors.push_back(host::wrap(THPVariable_Unpack(input.ptr()).unsafeGetTensorImpl()));
  }
  TORCH_CHECK_VALUE(
      tensors.size() == program.num_inputs() && symbols.size() == program.num_symbols(), "program ",
      program.name(), " takes ", program.num_inputs(), " inputs and ", program.num_symbols(),
      " symbols, not ", tensors.size(), " and ", symbols.size());
  return tensors;
}

py::list wrap_all(std::vector<host::TensorRef> outputs) {
  py::list result(outputs.size());
  for (size_t index = 0; index < outputs.size(); ++index) {
    PyObject* const output = THPVariable_Wrap(at::TensorBase(std::move(outputs[index])));
    if (output == nullptr) throw py::error_already_set();
    PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(index), output);
  }
  return result;
}

py::list run(Program& program, const py::sequence& inputs, const std::vector<int64_t>& symbols) {
  return translated([&] {
    const py::tuple alive(inputs);  // the sequence may change while the lock is released
    const std::vector<trident_tensor> tensors = borrow(program, alive, symbols);
    std::vector<host::TensorRef> outputs;
    {
      const py::gil_scoped_release unlocked;
      program.run(tensors.data(), symbols.data(), outputs);
    }
    return wrap_all(std::move(outputs));
  });
}

struct CapturedLaunches {
  std::vector<host::CapturedLaunch> launches;
};

py::list capture(Program& program, const py::sequence& inputs, const std::vector<int64_t>& symbols,
                 CapturedLaunches& captured) {
  return translated([&] {
    const py::tuple alive(inputs);
    const std::vector<trident_tensor> tensors = borrow(program, alive, symbols);
    std::vector<host::TensorRef> outputs;
    {
      const py::gil_scoped_release unlocked;
      program.capture(tensors.data(), symbols.data(), outputs, captured.launches);
    }
    return wrap_all(std::move(outputs));
  });
}

// The tensor, or NULL for None.
host::TensorRef share(const py::handle& tensor) {
  if (tensor.is_none()) return {};
  TORCH_CHECK_TYPE(THPVariable_Check(tensor.ptr()), "expected tensors");
  return host::TensorRef::reclaim_copy(THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl());
}

void copy(CapturedLaunches& captured, driver::Kernel& kernel, const py::handle& to,
          const py::handle& from, uint64_t rows, uint32_t blocks, std::optional<size_t> input,
          std::optional<size_t> output) {
  translated([&] {
    TORCH_CHECK_VALUE(input.has_value() != output.has_value(), "a copy moves one of its sides");
    TORCH_CHECK_VALUE(kernel.backend() == driver::Backend::kCuda, "a copy runs on a GPU");
    const host::TensorRef target = share(to), source = share(from);
    const c10::Device device = target->device();
    void* const stream =
        c10::impl::getDeviceGuardImpl(device.type())->getStream(device).native_handle();
    const auto address = [](const host::TensorRef& tensor) {
      return reinterpret_cast<uintptr_t>(tensor->data());
    };
    captured.launches.push_back(host::capture_copy(
        static_cast<driver::CudaKernel&>(kernel), device.index(),
        static_cast<driver::cuda::Stream>(stream), {address(target), address(source), rows, blocks},
        input ? host::MovedSide{TRIDENT_PARAM_INPUT, *input}
              : host::MovedSide{TRIDENT_PARAM_OUTPUT, *output}));
    return 0;
  });
}

// A Python object that is released under the interpreter lock, wherever its last user ends.
std::shared_ptr<PyObject> keep(const py::object& object) {
  return {object.inc_ref().ptr(), [](PyObject* kept) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire locked;
            Py_DECREF(kept);
          }};
}

std::shared_ptr<host::GraphReplay> make_replay(
    const py::object& graph, int device,
    const std::vector<host::GraphReplay::CapturedInput>& inputs,
    const std::vector<std::pair<py::object, py::object>>& outputs, const CapturedLaunches& launches,
    const CapturedLaunches& copies) {
  return translated([&] {
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    void* const captured =
        reinterpret_cast<void*>(graph.attr("raw_cuda_graph")().cast<uintptr_t>());
    std::vector<host::GraphReplay::CapturedOutput> captured_outputs;
    for (const auto& [own, callers] : outputs)
      captured_outputs.push_back({share(own), share(callers)});
    driver::CudaLibrary& library = driver::CudaLibrary::instance();
    library.ensure_context(device);
    return std::make_shared<host::GraphReplay>(
        library, host::allocator_of(place), captured, keep(graph),
        c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getStream(place), inputs,
        captured_outputs, launches.launches, copies.launches);
  });
}

void serve_variants(Program& program, const py::function& source) {
  program.variants().set_source(
      [function = keep(source)](uint32_t launch, uint64_t choice) -> host::Variant {
        const py::gil_scoped_acquire locked;
        try {
          const auto made =
              py::reinterpret_borrow<py::function>(function.get())(launch, choice)
                  .cast<std::pair<std::shared_ptr<driver::Kernel>, std::vector<uint32_t>>>();
          return {made.first, made.second};
        } catch (py::error_already_set& raised) {
          raised.restore();
          python_error error;
          error.persist();
          throw error;
        }
      });
}

uint32_t prepare(Program& program, const py::sequence& inputs,
                 const std::vector<int64_t>& symbols) {
  return translated([&] {
    const py::tuple alive(inputs);
    const std::vector<trident_tensor> tensors = borrow(program, alive, symbols);
    const py::gil_scoped_release unlocked;
    return program.prepare(tensors.data(), symbols.data());
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
      .def("capture", &capture, py::arg("inputs"), py::arg("symbols"), py::arg("launches"),
           "Runs while the current stream is captured and returns the outputs. Adds to `launches`\n"
           "those of the graph that work on memory which only launches touch.")
      .def_property_readonly(
          "input_pointers",
          [](const Program& program) { return program.pointers(TRIDENT_PARAM_INPUT); },
          "Of each input that nothing but launches touches, how many of them take it.")
      .def_property_readonly(
          "output_pointers",
          [](const Program& program) { return program.pointers(TRIDENT_PARAM_OUTPUT); },
          "The same of each output that is fresh memory, or a view of such.")
      .def("guard", &guard, py::arg("symbols"),
           "Whether the residual guard holds for these values.")
      .def(
          "numbers",
          [](const Program& program, const std::vector<int64_t>& symbols) {
            TORCH_CHECK_VALUE(symbols.size() == program.num_symbols(), "program ", program.name(),
                              " has another number of symbols");
            return program.numbers(symbols.data());
          },
          py::arg("symbols"),
          "The numbers that the call's result and effects hold; of doubles, the bits.")
      .def("serve_variants", &serve_variants, py::arg("source"),
           "Sets what compiles missing kernel variants: source(launch, choice) returns a Kernel "
           "and which\n"
           "parameters of the launch record it takes. Called without other locks than the "
           "interpreter's.")
      .def(
          "add_variant",
          [](Program& program, uint32_t launch, uint64_t choice,
             std::shared_ptr<driver::Kernel> kernel, std::vector<uint32_t> params) {
            translated([&] {
              program.variants().add(launch, choice, {std::move(kernel), std::move(params)});
              return 0;
            });
          },
          py::arg("launch"), py::arg("choice"), py::arg("kernel"), py::arg("params"),
          "Publishes the variant for one choice of a launch's facts.")
      .def("prepare", &prepare, py::arg("inputs"), py::arg("symbols") = std::vector<int64_t>(),
           "Compiles the kernel variants that such a run needs; returns how many were missing.")
      .def_property_readonly("num_variants",
                             [](Program& program) { return program.variants().size(); })
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

  py::class_<CapturedLaunches>(m, "CapturedLaunches",
                               "Launches of a graph that can be pointed at other memory.")
      .def(py::init<>())
      .def(
          "copy", &copy, py::arg("kernel"), py::arg("to"), py::arg("source"), py::arg("rows"),
          py::arg("blocks"), py::arg("input"), py::arg("output"),
          "Launches a kernel that takes two addresses and a number of rows on the current stream,\n"
          "which is being captured. The address that it reads is to be that of an input of the\n"
          "program, or the one that it writes that of an output; the other is None.");

  py::class_<host::GraphReplay::CapturedInput>(m, "CapturedInput",
                                               "How an input reaches the kernels of a graph.")
      .def(py::init([](const py::object& own, const py::object& callers, bool argument,
                       bool pointed, bool written, bool launched, size_t alignment) {
             return host::GraphReplay::CapturedInput{share(own), share(callers), argument, pointed,
                                                     written,    launched,       alignment};
           }),
           py::kw_only(), py::arg("own"), py::arg("callers"), py::arg("argument"),
           py::arg("pointed"), py::arg("written"), py::arg("launched"), py::arg("alignment"),
           "`own`: the graph's copy, or None. `callers`: what the graph was captured with.\n"
           "`argument`: it is the call's, not the state's. `pointed`: launches are pointed at it.\n"
           "`written`: the program writes it. `launched`: launches take it. `alignment`: what a\n"
           "copy's address has to be a multiple of.");

  py::class_<host::GraphReplay, std::shared_ptr<host::GraphReplay>>(
      m, "GraphReplay", "A host program captured into a CUDA graph.")
      .def(
          py::init(&make_replay), py::arg("graph"), py::arg("device"), py::arg("inputs"),
          py::arg("outputs"), py::arg("launches"), py::arg("copies"),
          "`graph`: a torch.cuda.CUDAGraph that keeps its graph, and is kept alive. It serves\n"
          "calls on the stream that is current now. Of each output, the graph's own, and the copy\n"
          "of it or None where launches are pointed at it.\n"
          "`launches` are those of Program.capture, `copies` those of staged inputs and of "
          "outputs.\n"
          "Raises RuntimeError where the graph cannot be instantiated, or a launch of it changed.")
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
