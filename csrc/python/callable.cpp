// The SCM's Python types: `Scm`, the callable itself; `ModuleEntry`, the same callable as the
// `__call__` of a module's or function's class; and `MethodEntry`, the `__call__` of such a function
// bound to an instance. All are entered by vectorcall.
#include "python/bindings.h"

#include <c10/util/SmallVector.h>
#include <structmember.h>

#include <vector>

#include "python/scm_object.h"

namespace py = pybind11;

namespace trident::python {
namespace {

using guards::Ref;

struct ScmObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  Module* module;
};

struct EntryObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* scm;
};

struct MethodEntryObject {
  PyObject_HEAD vectorcallfunc vectorcall;
};

PyTypeObject* scm_type = nullptr;
PyTypeObject* entry_type = nullptr;
PyTypeObject* method_entry_type = nullptr;

PyObject* scm_vectorcall(PyObject* self, PyObject* const* arguments, size_t flags,
                         PyObject* keyword_names) {
  return reinterpret_cast<ScmObject*>(self)->module->call(
      arguments, static_cast<size_t>(PyVectorcall_NARGS(flags)), keyword_names);
}

// The first argument is the module the class's __call__ was looked up on.
PyObject* entry_vectorcall(PyObject* self, PyObject* const* arguments, size_t flags,
                           PyObject* keyword_names) {
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  PyObject* scm = reinterpret_cast<EntryObject*>(self)->scm;
  if (count == 0 || !scm) {
    PyErr_SetString(PyExc_TypeError, "an optimized module's __call__ needs the module");
    return nullptr;
  }
  return reinterpret_cast<ScmObject*>(scm)->module->call(arguments + 1, count - 1, keyword_names);
}

// The first argument has the function and the function's first argument as attributes, as a method.
PyObject* method_vectorcall(PyObject*, PyObject* const* arguments, size_t flags,
                            PyObject* keyword_names) {
  static PyObject* const names[] = {PyUnicode_InternFromString("__func__"),
                                    PyUnicode_InternFromString("__self__"),
                                    PyUnicode_InternFromString("__call__")};
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  if (count == 0) {
    PyErr_SetString(PyExc_TypeError, "a bound method's __call__ needs the method");
    return nullptr;
  }
  const Ref function = Ref::steal(PyObject_GetAttr(arguments[0], names[0]));
  const Ref instance = Ref::steal(PyObject_GetAttr(arguments[0], names[1]));
  if (!function || !instance) return nullptr;
  const size_t num_keywords =
      keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names)) : 0;
  c10::SmallVector<PyObject*, 16> all(arguments, arguments + count + num_keywords);
  all[0] = instance.get();
  // Straight to the native module, unless a trace put another function in its place.
  const Ref entry =
      Ref::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(function.get())), names[2]));
  if (!entry) return nullptr;
  PyObject* scm = Py_IS_TYPE(entry.get(), entry_type)
                      ? reinterpret_cast<EntryObject*>(entry.get())->scm
                      : nullptr;
  if (scm) {
    return reinterpret_cast<ScmObject*>(scm)->module->call(all.data(), count, keyword_names);
  }
  return PyObject_Vectorcall(function.get(), all.data(), count, keyword_names);
}

PyObject* scm_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"miss", "eager", "max_specializations", nullptr};
  PyObject *miss, *eager;
  Py_ssize_t capacity;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOn", const_cast<char**>(names), &miss, &eager,
                                   &capacity)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<ScmObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = scm_vectorcall;
  self->module = new Module(miss, eager, static_cast<size_t>(capacity));
  return reinterpret_cast<PyObject*>(self);
}

int scm_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  auto* module = reinterpret_cast<ScmObject*>(self)->module;
  return module ? module->traverse(visit, arg) : 0;
}

int scm_clear(PyObject* self) {
  if (auto* module = reinterpret_cast<ScmObject*>(self)->module) module->clear();
  return 0;
}

void scm_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<ScmObject*>(self)->module;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* scm;
  if (!PyArg_ParseTuple(args, "O!", scm_type, &scm)) return nullptr;
  auto* self = reinterpret_cast<EntryObject*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = entry_vectorcall;
  self->scm = Py_NewRef(scm);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* method_entry_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<MethodEntryObject*>(type->tp_alloc(type, 0));
  if (self) self->vectorcall = method_vectorcall;
  return reinterpret_cast<PyObject*>(self);
}

int method_entry_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int method_entry_clear(PyObject*) { return 0; }

void method_entry_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* entry_get(PyObject* self, PyObject* object, PyObject*) {
  return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

int entry_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<EntryObject*>(self)->scm);
  return 0;
}

int entry_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<EntryObject*>(self)->scm);
  return 0;
}

void entry_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  entry_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename Object>
PyTypeObject* make_type(const char* name, unsigned long flags, newfunc create,
                        traverseproc traverse, inquiry clear, destructor dealloc,
                        descrgetfunc get) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  std::vector<PyType_Slot> slots = {
      {Py_tp_new, reinterpret_cast<void*>(create)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_members, members},
  };
  if (get) slots.push_back({Py_tp_descr_get, reinterpret_cast<void*>(get)});
  slots.push_back({0, nullptr});
  PyType_Spec spec{name, sizeof(Object), 0,
                   static_cast<unsigned int>(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                             Py_TPFLAGS_HAVE_VECTORCALL | flags),
                   slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw py::error_already_set();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

Module& module_of(py::handle scm) {
  if (!PyObject_TypeCheck(scm.ptr(), scm_type)) throw py::type_error("expected an Scm");
  return *reinterpret_cast<ScmObject*>(scm.ptr())->module;
}

void bind_callable(py::module_& m) {
  scm_type = make_type<ScmObject>("trident._C.Scm", 0, scm_new, scm_traverse, scm_clear,
                                  scm_dealloc, nullptr);
  entry_type =
      make_type<EntryObject>("trident._C.ModuleEntry", Py_TPFLAGS_METHOD_DESCRIPTOR, entry_new,
                             entry_traverse, entry_clear, entry_dealloc, entry_get);
  method_entry_type = make_type<MethodEntryObject>(
      "trident._C.MethodEntry", Py_TPFLAGS_METHOD_DESCRIPTOR, method_entry_new,
      method_entry_traverse, method_entry_clear, method_entry_dealloc, entry_get);
  m.attr("Scm") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(scm_type));
  m.attr("ModuleEntry") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(entry_type));
  m.attr("MethodEntry") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(method_entry_type));
}

}  // namespace trident::python
