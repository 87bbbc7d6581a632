// Builtin functions while a call is traced over symbols: they take a symbolic number for a number.
#include <memory>
#include <utility>
#include <vector>

#include "guards/python.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace trident::python {
namespace {

using guards::PythonError;
using guards::Ref;

bool is_one_of(PyTypeObject* type, PyObject* types) {
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(types); ++index) {
    if (reinterpret_cast<PyObject*>(type) == PyTuple_GET_ITEM(types, index)) return true;
  }
  return false;
}

// `self` is (function, types, answer): if one of the first two arguments has one of these types,
// `answer` is called, else the function. PyTorch's tracing asks hundreds of thousands of times, so
// this must cost what the builtin does.
PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  PyObject* const types = PyTuple_GET_ITEM(self, 1);
  Py_ssize_t chosen = 0;
  const Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
  for (Py_ssize_t index = 0; index < all && index < 2; ++index) {
    if (is_one_of(Py_TYPE(arguments[index]), types)) chosen = 2;
  }
  // The trace may end meanwhile, in another thread, and `self` with it.
  const Ref callee = Ref::borrow(PyTuple_GET_ITEM(self, chosen));
  return PyObject_Vectorcall(callee.get(), arguments, static_cast<size_t>(count), names);
}

PyMethodDef definition = {
    "builtin_but_for", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)),
    METH_FASTCALL | METH_KEYWORDS, "A builtin function, while a call is traced."};

Ref but_for(PyObject* function, PyObject* types, PyObject* answer) {
  const Ref self = Ref::steal(PyTuple_Pack(3, function, types, answer));
  Ref made = Ref::steal(self ? PyCFunction_New(&definition, self.get()) : nullptr);
  if (!made) throw PythonError();
  return made;
}

PyCFunctionObject* native(const Ref& function) {
  return reinterpret_cast<PyCFunctionObject*>(function.get());
}

// A builtin function that does something else from construction to destruction, under whatever name
// it was imported: what it calls is exchanged, not the function.
class DivertedFunction {
 public:
  DivertedFunction(PyObject* function, PyObject* types, PyObject* answer)
      : function_(Ref::borrow(function)) {
    original_ = Ref::steal(PyCFunction_NewEx(native(function_)->m_ml, native(function_)->m_self,
                                             native(function_)->m_module));
    if (!original_) throw PythonError();
    other_ = but_for(original_.get(), types, answer);
    exchange(native(function_), native(other_));
  }
  ~DivertedFunction() { exchange(native(function_), native(other_)); }
  DivertedFunction(const DivertedFunction&) = delete;
  DivertedFunction& operator=(const DivertedFunction&) = delete;

  const Ref& original() const { return original_; }

 private:
  static void exchange(PyCFunctionObject* a, PyCFunctionObject* b) {
    std::swap(a->m_ml, b->m_ml);
    std::swap(a->m_self, b->m_self);
    std::swap(a->vectorcall, b->vectorcall);
  }

  Ref function_;
  Ref original_;
  Ref other_;
};

// What `float(x)` and `int(x)` do for symbolic numbers; the types stay the objects that they are.
struct Conversion {
  explicit Conversion(PyTypeObject* converts_to) : type(converts_to) {}
  PyTypeObject* type;
  vectorcallfunc original = nullptr;
  Ref types, answer;
};
Conversion conversions[] = {Conversion(&PyFloat_Type), Conversion(&PyLong_Type)};

// A call of a type without a vectorcall function, as `int` has none in CPython 3.11.
PyObject* call_type(PyObject* type, PyObject* const* arguments, size_t count, PyObject* names) {
  const Py_ssize_t positional = PyVectorcall_NARGS(count);
  const Ref tuple = Ref::steal(PyTuple_New(positional));
  const Ref keywords = Ref::steal(names ? PyDict_New() : nullptr);
  if (!tuple || (names && !keywords)) return nullptr;
  for (Py_ssize_t index = 0; index < positional; ++index) {
    PyTuple_SET_ITEM(tuple.get(), index, Ref::borrow(arguments[index]).release());
  }
  for (Py_ssize_t index = 0; names && index < PyTuple_GET_SIZE(names); ++index) {
    PyObject* name = PyTuple_GET_ITEM(names, index);
    if (PyDict_SetItem(keywords.get(), name, arguments[positional + index]) < 0) return nullptr;
  }
  return PyType_Type.tp_call(type, tuple.get(), keywords.get());
}

template <int kIndex>
PyObject* convert(PyObject* type, PyObject* const* arguments, size_t count, PyObject* names) {
  const Conversion& conversion = conversions[kIndex];
  if (PyVectorcall_NARGS(count) == 1 && !names && conversion.answer &&
      is_one_of(Py_TYPE(arguments[0]), conversion.types.get())) {
    return PyObject_CallOneArg(conversion.answer.get(), arguments[0]);
  }
  const vectorcallfunc original = conversion.original ? conversion.original : &call_type;
  return original(type, arguments, count, names);
}
constexpr vectorcallfunc kConverters[] = {&convert<0>, &convert<1>};

class DivertedType {
 public:
  DivertedType(int index, PyObject* types, PyObject* answer) : index_(index) {
    Conversion& conversion = conversions[index];
    conversion.types = Ref::borrow(types);
    conversion.answer = Ref::borrow(answer);
    conversion.original = conversion.type->tp_vectorcall;
    conversion.type->tp_vectorcall = kConverters[index];
  }
  ~DivertedType() {
    Conversion& conversion = conversions[index_];
    conversion.type->tp_vectorcall = conversion.original;
    conversion.types = Ref();
    conversion.answer = Ref();
  }
  DivertedType(const DivertedType&) = delete;
  DivertedType& operator=(const DivertedType&) = delete;

 private:
  int index_;
};

// A class whose instances say that theirs is another one: `__class__` is looked up among the class's
// own attributes, where Python does not let anyone put it.
class Disguise {
 public:
  Disguise(PyTypeObject* type, PyObject* property) : type_(Ref::borrow(as_object(type))) {
    if (PyDict_SetItemString(type->tp_dict, kName, property) < 0) throw PythonError();
    PyType_Modified(type);
  }
  ~Disguise() {
    auto* const type = reinterpret_cast<PyTypeObject*>(type_.get());
    if (PyDict_DelItemString(type->tp_dict, kName) < 0) PyErr_WriteUnraisable(type_.get());
    PyType_Modified(type);
  }
  Disguise(const Disguise&) = delete;
  Disguise& operator=(const Disguise&) = delete;

 private:
  static constexpr const char* kName = "__class__";
  static PyObject* as_object(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

  Ref type_;
};

// Builtins that are diverted until `end`. One at a time: captures are serialized.
class Diversion {
 public:
  // Returns what does what the builtin did before.
  py::object divert(const py::object& builtin, const py::tuple& types, const py::function& answer) {
    for (int index = 0; index < 2; ++index) {
      if (builtin.ptr() != reinterpret_cast<PyObject*>(conversions[index].type)) continue;
      if (conversions[index].answer) throw py::value_error("the type is diverted already");
      types_.push_back(std::make_unique<DivertedType>(index, types.ptr(), answer.ptr()));
      return builtin;
    }
    if (!PyCFunction_CheckExact(builtin.ptr())) throw py::type_error("not a builtin function");
    functions_.push_back(
        std::make_unique<DivertedFunction>(builtin.ptr(), types.ptr(), answer.ptr()));
    return py::reinterpret_borrow<py::object>(functions_.back()->original().get());
  }
  // `property` answers for `__class__` of instances of a class without such an attribute.
  void disguise(const py::type& type, const py::object& property) {
    classes_.push_back(
        std::make_unique<Disguise>(reinterpret_cast<PyTypeObject*>(type.ptr()), property.ptr()));
  }
  void end() {
    functions_.clear();
    types_.clear();
    classes_.clear();
  }

 private:
  std::vector<std::unique_ptr<DivertedFunction>> functions_;
  std::vector<std::unique_ptr<DivertedType>> types_;
  std::vector<std::unique_ptr<Disguise>> classes_;
};

}  // namespace

void bind_builtins(py::module_& m) {
  m.def(
      "builtin_but_for",
      [](const py::function& function, const py::tuple& types, const py::function& answer) {
        return py::reinterpret_steal<py::object>(
            but_for(function.ptr(), types.ptr(), answer.ptr()).release());
      },
      py::arg("function"), py::arg("types"), py::arg("answer"),
      "A builtin function, but that `answer` is called where the first or second argument is of "
      "exactly one of these types.");
  py::class_<Diversion>(m, "Diversion")
      .def(py::init<>())
      .def("divert", &Diversion::divert, py::arg("builtin"), py::arg("types"), py::arg("answer"))
      .def("disguise", &Diversion::disguise, py::arg("type"), py::arg("property"))
      .def("end", &Diversion::end);
}

}  // namespace trident::python
