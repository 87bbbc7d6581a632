// Records which Python code runs during a trace, and refuses calls whose effect cannot be replayed.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "guards/python.h"

namespace trident::guards {

struct ExecutedCode {
  Ref code;
  Ref globals;
};

// Installs itself as the calling thread's profile function from construction to destruction. The
// profile function that was there before is put back.
class Recorder {
 public:
  // `rules` says what to do about calls:
  //   builtin function -> reason: a call of it from user code cannot be captured;
  //   builtin or Python function -> (reason,): a call of it from anywhere cannot;
  //   None -> callable: called as (function, code, globals) before each of the user's functions runs
  //   for the first time, where `function` is None for module and class bodies.
  explicit Recorder(PyObject* rules);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::vector<ExecutedCode>& executed() const { return executed_; }
  // Empty, or the reason of the first refused call and its place, "file.py:line".
  const std::string& refusal() const { return refusal_; }
  const std::string& refusal_place() const { return refusal_place_; }

 private:
  friend struct RecorderHook;
  struct Rule {
    std::string reason;
    bool anywhere;
  };
  int on_call(PyFrameObject* frame);
  int on_c_call(PyFrameObject* frame, PyObject* function);
  int refuse(PyFrameObject* frame, const std::string& reason);

  std::unordered_set<PyObject*> seen_;
  std::vector<ExecutedCode> executed_;
  std::unordered_set<PyObject*> seen_functions_;
  std::vector<Ref> functions_;               // keeps the addresses in seen_functions_ meaningful
  std::unordered_map<void*, Rule> refused_;  // by C function
  std::unordered_map<PyObject*, Rule> refused_code_;  // by code object
  Ref observer_;
  std::string refusal_;
  std::string refusal_place_;
  Py_tracefunc previous_function_ = nullptr;
  Ref previous_;
};

}  // namespace trident::guards
