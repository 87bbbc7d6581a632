// Kernels and launches of the cpu backend.
#include "driver/cpu.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/csrc/Exceptions.h>

#include <bit>
#include <utility>

namespace trident::driver {
namespace {

class InterpreterLock {
 public:
  InterpreterLock() : state_(PyGILState_Ensure()) {}
  ~InterpreterLock() { PyGILState_Release(state_); }
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;

 private:
  PyGILState_STATE state_;
};

struct DropReference {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, DropReference>;

[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

Owned checked(PyObject* object) {
  if (object == nullptr) throw_python_error();
  return Owned(object);
}

PyObject* read(ParamKind kind, uint64_t bits) {
  switch (kind) {
    case ParamKind::kBool:
      return PyBool_FromLong(static_cast<uint8_t>(bits) != 0);
    case ParamKind::kInt8:
      return PyLong_FromLong(static_cast<int8_t>(bits));
    case ParamKind::kInt16:
      return PyLong_FromLong(static_cast<int16_t>(bits));
    case ParamKind::kInt32:
      return PyLong_FromLong(static_cast<int32_t>(bits));
    case ParamKind::kInt64:
      return PyLong_FromLongLong(static_cast<int64_t>(bits));
    case ParamKind::kUint8:
      return PyLong_FromUnsignedLong(static_cast<uint8_t>(bits));
    case ParamKind::kUint16:
      return PyLong_FromUnsignedLong(static_cast<uint16_t>(bits));
    case ParamKind::kUint32:
      return PyLong_FromUnsignedLong(static_cast<uint32_t>(bits));
    case ParamKind::kPointer:
    case ParamKind::kTensorMap:
    case ParamKind::kUint64:
      return PyLong_FromUnsignedLongLong(bits);
    case ParamKind::kFloat16:
      return PyFloat_FromDouble(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits()));
    case ParamKind::kBfloat16:
      return PyFloat_FromDouble(
          c10::BFloat16(static_cast<uint16_t>(bits), c10::BFloat16::from_bits()));
    case ParamKind::kFloat32:
      return PyFloat_FromDouble(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case ParamKind::kFloat64:
      return PyFloat_FromDouble(std::bit_cast<double>(bits));
  }
  PyErr_SetString(PyExc_SystemError, "unknown kernel parameter kind");
  return nullptr;
}

}  // namespace

CpuKernel::CpuKernel(PyObject* run, std::string label, std::vector<std::string> params)
    : Kernel(kBackend, std::move(label), std::move(params)), run_(run) {
  Py_INCREF(run_);
}

CpuKernel::~CpuKernel() {
  // After the interpreter is gone there is nothing to give the reference back to.
  if (!Py_IsInitialized()) return;
  const InterpreterLock lock;
  Py_DECREF(run_);
}

void CpuLaunch::run(const uint32_t* grid, void* stream) {
  if (grid_is_empty(grid, *kernel_)) return;
  const InterpreterLock lock;
  const Owned dimensions = checked(Py_BuildValue("(III)", grid[0], grid[1], grid[2]));
  const std::vector<ParamKind>& kinds = kernel_->kinds();
  const Owned values = checked(PyTuple_New(static_cast<Py_ssize_t>(kinds.size())));
  for (size_t index = 0; index < kinds.size(); ++index) {
    PyObject* const value = checked(read(kinds[index], values_[index])).release();
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(index), value);
  }
  checked(PyObject_CallFunctionObjArgs(kernel_->run(), dimensions.get(), values.get(), nullptr));
}

}  // namespace trident::driver
