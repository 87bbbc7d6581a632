// Host programs: loading, checks of their tables, runs, errors in the middle, threads.
#include <ATen/ATen.h>
#include <Python.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/Exceptions.h>

#include <functional>
#include <optional>
#include <thread>

#include "errors.h"
#include "host/arena.h"
#include "host/program.h"
#include "host/validate.h"

namespace trident::test {
namespace {

using host::ArenaPool;
using host::Program;
using host::TensorRef;
using Kernels = std::vector<std::shared_ptr<driver::Kernel>>;

// out[i] = in[i] + scale * row[i % 3], over 2 programs of 3 elements each, plain memory accesses.
constexpr const char* kKernelSource = R"(
import ctypes
fail = False
def run(grid, values):
    source, row, out, nothing, scale = values
    assert grid == (2, 1, 1) and nothing == 0 and scale == 7
    if fail:
        raise IndexError('row 7')
    source = (ctypes.c_float * 6).from_address(source)
    row = (ctypes.c_float * 3).from_address(row)
    out = (ctypes.c_float * 6).from_address(out)
    for i in range(6):
        out[i] = source[i] + scale * row[i % 3]
)";

std::string path(const char* name) {
  return std::string(TRIDENT_TEST_PROGRAM_DIR) + "/" + name + ".so";
}

#define EXPECT_MESSAGE(text, ...)                              \
  do {                                                         \
    const std::string seen = message_of([&] { __VA_ARGS__; }); \
    EXPECT_NE(seen.find(text), std::string::npos) << seen;     \
  } while (0)

class InterpreterLock {
 public:
  InterpreterLock() : state_(PyGILState_Ensure()) {}
  ~InterpreterLock() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

class Chain : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Py_IsInitialized()) return;
    Py_InitializeEx(0);
    PyEval_SaveThread();
  }

  void SetUp() override {
    const InterpreterLock lock;
    names = PyDict_New();
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject* result = PyRun_String(kKernelSource, Py_file_input, names, names);
    ASSERT_NE(result, nullptr);
    Py_DECREF(result);
    kernel = std::make_shared<driver::CpuKernel>(
        PyDict_GetItemString(names, "run"), "scaled_add",
        std::vector<std::string>{"*fp32", "*fp32", "*fp32", "*fp32", "i32"});
    program = Program::load(path("chain"), {kernel});
  }

  void TearDown() override {
    program.reset();
    kernel.reset();
    const InterpreterLock lock;
    Py_DECREF(names);
  }

  void set_failing(bool failing) {
    const InterpreterLock lock;
    PyDict_SetItemString(names, "fail", failing ? Py_True : Py_False);
  }

  std::vector<at::Tensor> run(const at::Tensor& x, const at::Tensor& w, int64_t symbol = 0) {
    const trident_tensor inputs[] = {host::wrap(x.unsafeGetTensorImpl()),
                                     host::wrap(w.unsafeGetTensorImpl())};
    std::vector<TensorRef> outputs;
    program->run(inputs, &symbol, outputs);
    std::vector<at::Tensor> tensors;
    for (TensorRef& output : outputs) tensors.emplace_back(std::move(output));
    return tensors;
  }

  static at::Tensor expected(const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor product = at::mm(x, w);
    return (at::relu(product) + 7 * product[1]).detach();
  }

  void expect_works(const at::Tensor& x, const at::Tensor& w) {
    const std::vector<at::Tensor> outputs = run(x, w);
    ASSERT_EQ(outputs.size(), 3u);
    // The kernel adds in double precision: near a sum of 0 only the absolute difference is small.
    EXPECT_TRUE(at::allclose(outputs[0], expected(x, w), /*rtol=*/1e-5, /*atol=*/1e-5));
    EXPECT_TRUE(at::equal(outputs[1], x[1]));
    EXPECT_TRUE(at::equal(outputs[2], x[1]));
  }

  PyObject* names = nullptr;
  std::shared_ptr<driver::Kernel> kernel;
  std::shared_ptr<Program> program;
  at::Tensor x = at::randn({2, 3});
  at::Tensor w = at::randn({3, 3});
};

TEST_F(Chain, describes_itself) {
  EXPECT_STREQ(program->name(), "chain");
  EXPECT_EQ(program->num_inputs(), 2u);
  EXPECT_EQ(program->num_outputs(), 3u);
  EXPECT_EQ(program->launches(), 1u);
  EXPECT_EQ(program->calls_typed(), 1u);
  EXPECT_EQ(program->calls_boxed(), 1u);
  EXPECT_EQ(program->arena_bytes(), 128u);
  const int64_t good = 0;
  const int64_t bad = -1;
  EXPECT_TRUE(program->guard(&good));
  EXPECT_FALSE(program->guard(&bad));
}

TEST_F(Chain, numbers_are_computed_from_symbols) {
  const int64_t symbol = 14;
  EXPECT_EQ(program->numbers(&symbol), std::vector<int64_t>{43});
}

TEST_F(Chain, gives_what_eager_gives_at_every_call) {
  for (int call = 0; call < 3; ++call) {
    x = at::randn({2, 3});
    expect_works(x, w);
  }
}

TEST_F(Chain, outputs_are_the_callers_to_keep) {
  const at::Tensor kept = run(x, w)[0];
  const at::Tensor copy = kept.clone();
  run(at::randn({2, 3}), w);
  EXPECT_TRUE(at::equal(kept, copy));
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(Chain, escaping_views_are_views_for_autograd_too) {
  const std::vector<at::Tensor> outputs = run(x, w);
  EXPECT_TRUE(outputs[1].is_alias_of(x));
  EXPECT_EQ(outputs[1].storage_offset(), 3);
  EXPECT_TRUE(outputs[1].is_view());
  EXPECT_TRUE(outputs[1]._base().is_same(x));
}

TEST_F(Chain, views_share_the_version_counter_of_their_base) {
  const std::vector<at::Tensor> outputs = run(x, w);
  for (const at::Tensor& view : {outputs[1], outputs[2]}) {
    const int64_t version = x._version();
    view.add_(1);
    EXPECT_EQ(x._version(), version + 1);
  }
}

TEST_F(Chain, nothing_keeps_the_inputs_alive) {
  run(x, w);
  EXPECT_EQ(x.use_count(), 1);
  EXPECT_EQ(x.storage().use_count(), 1);
  EXPECT_EQ(w.use_count(), 1);
}

TEST_F(Chain, runs_in_and_out_of_inference_mode) {
  expect_works(x, w);
  {
    const c10::InferenceMode mode;
    const at::Tensor inference_x = at::randn({2, 3});
    expect_works(inference_x, w);
    const std::vector<at::Tensor> outputs = run(inference_x, w);
    for (const at::Tensor& output : outputs) EXPECT_TRUE(output.is_inference());
    EXPECT_FALSE(run(x, w)[1].is_inference());
  }
  expect_works(x, w);
}

TEST_F(Chain, weights_that_require_gradients_are_read_below_autograd) {
  w.requires_grad_();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> outputs = run(x, w);
  EXPECT_TRUE(at::allclose(outputs[0], expected(x, w)));
  EXPECT_FALSE(outputs[0].requires_grad());
}

TEST_F(Chain, an_error_in_the_middle_leaves_the_program_usable) {
  for (const auto& [symbol, text] :
       {std::pair<int64_t, const char*>{1, "stopped after the boxed call"},
        {2, "stopped after the outputs"},
        {3, "cannot be multiplied"},
        {4, "stopped before the last output"}}) {
    EXPECT_MESSAGE(text, run(x, w, symbol));
    EXPECT_EQ(x.use_count(), 1);
    EXPECT_EQ(x.storage().use_count(), 1);
    expect_works(x, w);
  }
}

TEST_F(Chain, an_error_tells_how_far_the_run_came) {
  const auto run_until = [&](int64_t symbol, host::Unfinished& unfinished) {
    const trident_tensor inputs[] = {host::wrap(x.unsafeGetTensorImpl()),
                                     host::wrap(w.unsafeGetTensorImpl())};
    std::vector<TensorRef> outputs;
    EXPECT_MESSAGE("stopped", program->run(inputs, &symbol, outputs, &unfinished));
    EXPECT_TRUE(outputs.empty());
  };
  host::Unfinished early, late;
  run_until(1, early);
  EXPECT_EQ(early.stage, 1u);
  ASSERT_EQ(early.outputs.size(), 3u);
  for (const TensorRef& output : early.outputs) EXPECT_FALSE(output.defined());
  run_until(4, late);
  EXPECT_EQ(late.stage, 2u);
  ASSERT_EQ(late.outputs.size(), 3u);
  for (const TensorRef& output : late.outputs) EXPECT_TRUE(output.defined());
  expect_works(x, w);
}

TEST_F(Chain, an_exception_of_a_kernel_is_raised_as_it_is) {
  set_failing(true);
  try {
    run(x, w);
    ADD_FAILURE() << "nothing was thrown";
  } catch (python_error& error) {
    const InterpreterLock lock;
    EXPECT_TRUE(PyErr_GivenExceptionMatches(error.type, PyExc_IndexError));
  }
  set_failing(false);
  expect_works(x, w);
}

TEST_F(Chain, a_frame_follows_its_arena_when_it_is_replaced) {
  expect_works(x, w);
  {
    // Grows the arena that the program's frame is bound to.
    const auto arena = ArenaPool::instance().lease(c10::Stream(c10::Stream::DEFAULT, x.device()),
                                                   c10::GetCPUAllocator());
    arena->reserve(1 << 20);
  }
  expect_works(x, w);
  ArenaPool::instance().clear();
  expect_works(x, w);
}

TEST_F(Chain, a_frame_moves_to_another_arena) {
  expect_works(x, w);
  std::vector<host::ArenaLease> taken;
  for (int arena = 0; arena < 12; ++arena) {
    taken.push_back(ArenaPool::instance().lease(c10::Stream(c10::Stream::DEFAULT, x.device()),
                                                c10::GetCPUAllocator()));
    expect_works(x, w);
  }
}

TEST_F(Chain, concurrent_calls_do_not_disturb_each_other) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this] {
      for (int call = 0; call < 50; ++call) {
        const at::Tensor input = at::randn({2, 3});
        expect_works(input, w);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Chain, the_same_library_loads_twice) {
  const std::shared_ptr<Program> second = Program::load(path("chain"), {kernel});
  program.reset();
  program = second;
  expect_works(x, w);
}

TEST_F(Chain, kernels_must_fit_the_launches) {
  EXPECT_MESSAGE("launch 0 uses kernel 0 of 0", Program::load(path("chain"), {}));
  const auto short_kernel = [this] {
    const InterpreterLock lock;
    return std::make_shared<driver::CpuKernel>(PyDict_GetItemString(names, "run"), "short",
                                               std::vector<std::string>{"*fp32"});
  }();
  EXPECT_MESSAGE("launch 0 passes 5 parameters to kernel short, which takes 1",
                 Program::load(path("chain"), {short_kernel}));
}

TEST(Load, says_what_is_wrong_with_a_library) {
  EXPECT_MESSAGE("cannot load the host program", Program::load(path("missing"), {}));
  EXPECT_MESSAGE("does not export trident_program_entry", Program::load(path("no_entry"), {}));
  const auto version = [](unsigned number) { return std::to_string(number); };
  const std::string mismatch = "was compiled for version " + version(TRIDENT_ABI_VERSION + 1) +
                               " of Trident's interface, this is version " +
                               version(TRIDENT_ABI_VERSION);
  EXPECT_MESSAGE(mismatch, Program::load(path("old_abi"), {}));
}

TEST(Run, a_program_that_breaks_its_contract_is_an_error) {
  const std::shared_ptr<Program> program = Program::load(path("forgetful"), {});
  std::vector<TensorRef> outputs;
  for (const auto& [symbol, text] :
       {std::pair<int64_t, const char*>{0, "did not store its output 0"},
        {1, "failed without saying why"}}) {
    EXPECT_MESSAGE(text, program->run(nullptr, &symbol, outputs));
  }
  EXPECT_TRUE(outputs.empty());
}

class Tables : public ::testing::Test {
 protected:
  int64_t sizes[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  trident_layout layout = {6, 2, sizes, strides, 0};
  trident_program program = [this] {
    trident_program tables{};
    tables.abi_version = TRIDENT_ABI_VERSION;
    tables.name = "tables";
    tables.device = {0, -1};
    tables.num_planned = 1;
    tables.num_slots = 1;
    tables.arena_bytes = 24;
    tables.planned = &layout;
    tables.run = [](trident_frame*) { return trident_status{0}; };
    return tables;
  }();
};

TEST_F(Tables, that_fit_are_accepted) { EXPECT_NO_THROW(host::validate(program, {})); }

TEST_F(Tables, planned_tensors_lie_inside_the_arena) {
  layout.offset = 4;
  EXPECT_MESSAGE("planned slot 0 ends beyond the arena of 24 bytes", host::validate(program, {}));
  sizes[0] = 0;  // without elements there is nothing to reach beyond
  EXPECT_NO_THROW(host::validate(program, {}));
}

TEST_F(Tables, planned_tensors_are_aligned_to_their_elements) {
  layout.offset = 2;
  EXPECT_MESSAGE("starts at byte 2, which is not a multiple of 4", host::validate(program, {}));
}

TEST_F(Tables, slots_hold_the_planned_tensors) {
  program.num_slots = 0;
  EXPECT_MESSAGE("has 1 planned tensors in 0 slots", host::validate(program, {}));
}

TEST(Numbers, are_tensors_without_weight_in_type_promotion) {
  trident_scalar third = {TRIDENT_SCALAR_FLOAT, {0}};
  third.value.f = 1.0 / 3;
  const struct {
    trident_scalar scalar;
    c10::ScalarType dtype;
  } cases[] = {
      {third, at::kDouble},
      {{TRIDENT_SCALAR_INT, {-7}}, at::kLong},
      {{TRIDENT_SCALAR_BOOL, {1}}, at::kBool},
  };
  const c10::InferenceMode inference;
  for (const auto& each : cases) {
    const at::Tensor tensor(host::number_tensor(each.scalar));
    EXPECT_EQ(tensor.dim(), 0);
    EXPECT_EQ(tensor.scalar_type(), each.dtype);
    EXPECT_TRUE(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    EXPECT_FALSE(tensor.is_inference());
  }
  const at::Tensor half = at::ones({2}, at::kHalf);
  EXPECT_EQ((half * at::Tensor(host::number_tensor(third))).scalar_type(), at::kHalf);
  EXPECT_EQ(at::Tensor(host::number_tensor(third)).item<double>(), 1.0 / 3);
  EXPECT_MESSAGE("unknown kind", host::number_tensor({9, {0}}));
}

TEST_F(Tables, devices_other_than_cpu_and_cuda_are_refused) {
  program.device.type = 13;
  EXPECT_MESSAGE("Trident knows cpu and cuda", host::validate(program, {}));
}

}  // namespace
}  // namespace trident::test
