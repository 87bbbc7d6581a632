#include "guards/recorder.h"

#include "guards/cpython_layout.h"
#include "guards/library.h"

namespace trident::guards {
namespace {

thread_local Recorder* active = nullptr;

void* c_function(PyObject* callable) {
  if (PyCFunction_Check(callable)) {
    return reinterpret_cast<void*>(PyCFunction_GET_FUNCTION(callable));
  }
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type)) {
    return reinterpret_cast<void*>(
        reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_meth);
  }
  return nullptr;
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

Recorder::Recorder(PyObject* rules) {
  PyObject *function, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(rules, &position, &function, &value)) {
    if (function == Py_None) {
      observer_ = Ref::borrow(value);
      continue;
    }
    const bool anywhere = PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 1;
    const char* text = PyUnicode_AsUTF8(anywhere ? PyTuple_GET_ITEM(value, 0) : value);
    if (!text) throw PythonError();
    if (PyFunction_Check(function)) {
      refused_code_.emplace(PyFunction_GET_CODE(function), Rule{text, anywhere});
    } else if (void* address = c_function(function)) {
      refused_.emplace(address, Rule{text, anywhere});
    }
  }
  // A profiler written in C has a function of its own, which sys.getprofile() does not show.
  const PyThreadState* thread = PyThreadState_Get();
  previous_function_ = thread->c_profilefunc;
  previous_ = Ref::borrow(thread->c_profileobj);
  active = this;
  PyEval_SetProfile(&RecorderHook::profile, nullptr);
}

Recorder::~Recorder() {
  active = nullptr;
  const KeptError error;
  PyEval_SetProfile(previous_function_, previous_.get());
}

int Recorder::on_call(PyFrameObject* frame) {
  Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  Ref globals = Ref::steal(PyFrame_GetGlobals(frame));
  PyObject* const address = code.get();
  if (!refused_code_.empty()) {
    const auto refused = refused_code_.find(address);
    if (refused != refused_code_.end()) {
      // The caller decides: the first frame with other globals than the function's own.
      Ref caller = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
      while (caller) {
        auto* outer = reinterpret_cast<PyFrameObject*>(caller.get());
        const Ref its_globals = Ref::steal(PyFrame_GetGlobals(outer));
        if (its_globals.get() != globals.get()) {
          if (refused->second.anywhere || !is_library(its_globals.get())) {
            return refuse(outer, refused->second.reason);
          }
          break;
        }
        caller = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(outer)));
      }
    }
  }
  const bool is_new = seen_.insert(address).second;
  if (observer_ && !is_library(globals.get())) {
    PyObject* function = function_of(frame);
    // One function object per code is enough, but for what each has of its own.
    const bool own =
        function && (PyFunction_GET_CLOSURE(function) || PyFunction_GET_DEFAULTS(function) ||
                     PyFunction_GET_KW_DEFAULTS(function) ||
                     reinterpret_cast<PyFunctionObject*>(function)->func_dict);
    if (is_new || (own && !seen_functions_.count(function))) {
      if (function && seen_functions_.insert(function).second) {
        functions_.push_back(Ref::borrow(function));
      }
      const Ref done = Ref::steal(PyObject_CallFunctionObjArgs(
          observer_.get(), function ? function : Py_None, address, globals.get(), nullptr));
      if (!done) return -1;
    }
  }
  if (is_new) executed_.push_back({std::move(code), std::move(globals)});
  return 0;
}

int Recorder::on_c_call(PyFrameObject* frame, PyObject* function) {
  if (refused_.empty()) return 0;
  void* address = c_function(function);
  if (!address) return 0;
  const auto found = refused_.find(address);
  if (found == refused_.end()) return 0;
  if (!found->second.anywhere) {
    const Ref globals = Ref::steal(PyFrame_GetGlobals(frame));
    if (is_library(globals.get())) return 0;
  }
  return refuse(frame, found->second.reason);
}

int Recorder::refuse(PyFrameObject* frame, const std::string& reason) {
  if (refusal_.empty()) {
    refusal_ = reason;
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
