// Attribute look-ups on modules while a call is traced, by whatever means code makes them.
#include <unordered_map>
#include <utility>
#include <vector>

#include "guards/python.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace trident::python {
namespace {

using guards::PythonError;
using guards::Ref;

PyObject* look_up(PyObject* module, PyObject* name);

// The slots of module types, which `look_up` replaces until `end`. One at a time: captures are
// serialized. CPython's own shortcut for names that stand in code passes by the slots.
class ModuleLookups {
 public:
  // `note(module, name)` is called before a look-up of this thread that `decide(globals)` says is of
  // interest, by the code that makes it: True, False, or None where the caller of that code decides.
  ModuleLookups(const py::tuple& types, const py::function& note, const py::function& decide)
      : note_(Ref::borrow(note.ptr())),
        decide_(Ref::borrow(decide.ptr())),
        thread_(PyThread_get_thread_ident()) {
    if (active) throw py::value_error("look-ups on modules are noted already");
    if (!module_slot) module_slot = PyModule_Type.tp_getattro;
    for (const py::handle each : types) {
      auto* const type = reinterpret_cast<PyTypeObject*>(each.ptr());
      if (type->tp_getattro == &look_up) continue;  // made while an earlier trace ran
      replaced_.push_back({Ref::borrow(each.ptr()), type->tp_getattro});
      type->tp_getattro = &look_up;
    }
    active = this;
  }
  ~ModuleLookups() { end(); }
  ModuleLookups(const ModuleLookups&) = delete;
  ModuleLookups& operator=(const ModuleLookups&) = delete;

  void end() {
    if (active != this) return;
    active = nullptr;
    for (const Replaced& each : replaced_) type_of(each)->tp_getattro = each.slot;
    replaced_.clear();
  }

  // What a module's own slot does; a class that was made during a trace has its base's.
  static getattrofunc slot_of(PyTypeObject* type) {
    for (; active && type; type = type->tp_base) {
      for (const Replaced& each : active->replaced_) {
        if (type_of(each) == type) return each.slot;
      }
    }
    return module_slot;
  }

  // Tells of a look-up; false with an exception set.
  static bool tell(PyObject* module, PyObject* name) {
    ModuleLookups* const here = active;
    if (!here || here->telling_ || PyThread_get_thread_ident() != here->thread_) return true;
    here->telling_ = true;
    bool fine = true;
    try {
      if (here->is_of_interest()) {
        const Ref done =
            Ref::steal(PyObject_CallFunctionObjArgs(here->note_.get(), module, name, nullptr));
        fine = static_cast<bool>(done);
      }
    } catch (const PythonError&) {
      fine = false;
    }
    if (active == here) here->telling_ = false;
    return fine;
  }

 private:
  struct Replaced {
    Ref type;
    getattrofunc slot;
  };
  static PyTypeObject* type_of(const Replaced& each) {
    return reinterpret_cast<PyTypeObject*>(each.type.get());
  }

  bool is_of_interest() {
    Ref frame = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (frame) {
      auto* const code = reinterpret_cast<PyFrameObject*>(frame.get());
      const Ref decision = decision_on(Ref::steal(PyFrame_GetGlobals(code)));
      if (decision.get() != Py_None) return decision.get() == Py_True;
      frame = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(code)));
    }
    return false;
  }

  // Asked once for all code of a module.
  Ref decision_on(const Ref& globals) {
    const auto known = decisions_.find(globals.get());
    if (known != decisions_.end()) return known->second.second;
    Ref decision = Ref::steal(PyObject_CallOneArg(decide_.get(), globals.get()));
    if (!decision) throw PythonError();
    decisions_.emplace(globals.get(), std::pair(globals, decision));
    return decision;
  }

  static ModuleLookups* active;
  static getattrofunc module_slot;

  Ref note_;
  Ref decide_;
  unsigned long thread_;
  bool telling_ = false;
  std::vector<Replaced> replaced_;
  std::unordered_map<PyObject*, std::pair<Ref, Ref>> decisions_;  // by globals, which are kept
};

ModuleLookups* ModuleLookups::active = nullptr;
getattrofunc ModuleLookups::module_slot = nullptr;

PyObject* look_up(PyObject* module, PyObject* name) {
  if (!ModuleLookups::tell(module, name)) return nullptr;
  return ModuleLookups::slot_of(Py_TYPE(module))(module, name);
}

}  // namespace

void bind_modules(py::module_& m) {
  py::class_<ModuleLookups>(m, "ModuleLookups")
      .def(py::init<const py::tuple&, const py::function&, const py::function&>(), py::arg("types"),
           py::arg("note"), py::arg("decide"))
      .def("end", &ModuleLookups::end);
}

}  // namespace trident::python
