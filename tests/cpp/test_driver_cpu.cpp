// The CPU driver: kernels that are Python functions.
#include <Python.h>
#include <gtest/gtest.h>
#include <torch/csrc/Exceptions.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "driver/cpu.h"

namespace trident::test {
namespace {

using driver::CpuKernel;
using driver::CpuLaunch;

const uint32_t kGrid[3] = {5, 3, 2};

class Interpreter : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Py_IsInitialized()) return;
    Py_InitializeEx(0);
    // Host programs run without the interpreter lock.
    PyEval_SaveThread();
  }

  // Defines `run` by Python source and returns the namespace, new reference.
  static PyObject* define(const char* source) {
    PyObject* names = PyDict_New();
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject* result = PyRun_String(source, Py_file_input, names, names);
    EXPECT_NE(result, nullptr);
    Py_XDECREF(result);
    return names;
  }
};

TEST_F(Interpreter, values_have_the_type_that_the_kernel_reads) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* names =
      define("seen = []\ndef run(grid, values):\n    seen.append(repr((grid, values)))\n");
  auto kernel = std::make_unique<CpuKernel>(
      PyDict_GetItemString(names, "run"), "add",
      std::vector<std::string>{"*fp32", "u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64",
                               "fp16", "bf16", "fp32", "fp64"});
  PyGILState_Release(state);

  // The upper bytes of narrow values are not the kernel's to read.
  const uint64_t garbage = 0xabcd000000000000u;
  const uint64_t values[] = {0x7f0012345678u,
                             garbage | 1,
                             garbage | 0xff,
                             garbage | 0xfffe,
                             garbage | 0xfffffffd,
                             static_cast<uint64_t>(-4),
                             garbage | 0xff,
                             garbage | 0xfffe,
                             garbage | 0xfffffffd,
                             static_cast<uint64_t>(-4),
                             garbage | 0x3e00,
                             garbage | 0xbfc0,
                             garbage | std::bit_cast<uint32_t>(0.25f),
                             std::bit_cast<uint64_t>(0.1)};
  CpuLaunch(*kernel, -1, values).run(kGrid, nullptr);
  const uint32_t empty[3] = {1, 0, 1};
  CpuLaunch(*kernel, -1, values).run(empty, nullptr);
  kernel.reset();

  const PyGILState_STATE again = PyGILState_Ensure();
  PyObject* seen = PyDict_GetItemString(names, "seen");
  ASSERT_EQ(PyList_Size(seen), 1);
  EXPECT_STREQ(PyUnicode_AsUTF8(PyList_GetItem(seen, 0)),
               "((5, 3, 2), (139638282147448, True, -1, -2, -3, -4, 255, 65534, 4294967293, "
               "18446744073709551612, 1.5, -1.5, 0.25, 0.1))");
  Py_DECREF(names);
  PyGILState_Release(again);
}

TEST_F(Interpreter, a_python_exception_leaves_as_it_is) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* names = define("def run(grid, values):\n    raise IndexError('row 7')\n");
  CpuKernel kernel(PyDict_GetItemString(names, "run"), "gather", {});
  PyGILState_Release(state);
  try {
    CpuLaunch(kernel, -1, nullptr).run(kGrid, nullptr);
    ADD_FAILURE() << "nothing was thrown";
  } catch (python_error& error) {
    const PyGILState_STATE again = PyGILState_Ensure();
    EXPECT_TRUE(PyErr_GivenExceptionMatches(error.type, PyExc_IndexError));
    PyGILState_Release(again);
  }
}

}  // namespace
}  // namespace trident::test
