#include "guards/type_map.h"

#include <vector>

namespace trident::guards {
namespace {

std::vector<TypeMapBase*>& maps() {
  static auto* all = new std::vector<TypeMapBase*>();  // maps live as long as the interpreter
  return *all;
}

// Called with the dead weak reference; `self` is the type's address as an int.
PyObject* on_death(PyObject* self, PyObject*) {
  TypeMapBase::forget_in_all(static_cast<PyTypeObject*>(PyLong_AsVoidPtr(self)));
  return Py_NewRef(Py_None);
}

PyMethodDef on_death_method{"forget_type", &on_death, METH_O, nullptr};

}  // namespace

TypeMapBase::TypeMapBase() { maps().push_back(this); }

void TypeMapBase::forget_in_all(PyTypeObject* type) {
  for (TypeMapBase* map : maps()) map->forget(type);
}

Ref TypeMapBase::watch_life(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return Ref();
  const Ref address = Ref::steal(PyLong_FromVoidPtr(type));
  if (!address) throw PythonError();
  const Ref callback = Ref::steal(PyCFunction_New(&on_death_method, address.get()));
  if (!callback) throw PythonError();
  Ref life = Ref::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), callback.get()));
  if (!life) throw PythonError();
  return life;
}

}  // namespace trident::guards
