#include "guards/recorder.h"

namespace trident::guards {
namespace {

thread_local Recorder* active = nullptr;

void* c_function(PyObject* callable) {
  return PyCFunction_Check(callable) ? reinterpret_cast<void*>(PyCFunction_GET_FUNCTION(callable))
                                     : nullptr;
}

}  // namespace

// The profile function; reaches the recorder through the thread, since CPython hands it an object.
struct RecorderHook {
  static int profile(PyObject*, PyFrameObject* frame, int what, PyObject* argument) {
    if (!active) return 0;
    if (what == PyTrace_CALL) return active->on_call(frame);
    if (what == PyTrace_C_CALL) return active->on_c_call(frame, argument);
    return 0;
  }
};

Recorder::Recorder(PyObject* refused) {
  PyObject *function, *reason;
  Py_ssize_t position = 0;
  while (PyDict_Next(refused, &position, &function, &reason)) {
    const char* text = PyUnicode_AsUTF8(reason);
    if (!text) throw PythonError();
    if (void* address = c_function(function)) refused_.emplace(address, text);
  }
  const Ref sys = Ref::steal(PyImport_ImportModule("sys"));
  if (!sys) throw PythonError();
  previous_ = Ref::steal(PyObject_CallMethod(sys.get(), "getprofile", nullptr));
  if (!previous_) throw PythonError();
  active = this;
  PyEval_SetProfile(&RecorderHook::profile, nullptr);
}

Recorder::~Recorder() {
  active = nullptr;
  PyEval_SetProfile(nullptr, nullptr);
  if (previous_ && previous_.get() != Py_None) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const Ref sys = Ref::steal(PyImport_ImportModule("sys"));
    const Ref done = Ref::steal(
        sys ? PyObject_CallMethod(sys.get(), "setprofile", "O", previous_.get()) : nullptr);
    if (!done) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
  }
}

int Recorder::on_call(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  Ref owned = Ref::steal(reinterpret_cast<PyObject*>(code));
  if (!seen_.insert(owned.get()).second) return 0;
  executed_.push_back({std::move(owned), Ref::steal(PyFrame_GetGlobals(frame))});
  return 0;
}

int Recorder::on_c_call(PyFrameObject* frame, PyObject* function) {
  if (refused_.empty()) return 0;
  void* address = c_function(function);
  if (!address) return 0;
  const auto found = refused_.find(address);
  if (found == refused_.end()) return 0;
  const Ref globals = Ref::steal(PyFrame_GetGlobals(frame));
  if (is_library(globals.get())) return 0;
  if (refusal_.empty()) {
    refusal_ = found->second;
    const Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const Ref file = Ref::steal(PyObject_GetAttrString(code.get(), "co_filename"));
    const char* name = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
    refusal_place_ =
        std::string(name ? name : "?") + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    PyErr_Clear();
  }
  PyErr_SetString(PyExc_RuntimeError, refusal_.c_str());
  return -1;
}

}  // namespace trident::guards
