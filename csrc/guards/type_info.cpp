#include "guards/type_info.h"

#include <descrobject.h>
#include <structmember.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

#include <algorithm>
#include <cstring>

#include "guards/type_map.h"

namespace trident::guards {
namespace {

std::vector<Ref>& identity_types() {
  static auto* types = new std::vector<Ref>();  // lives as long as the interpreter
  return *types;
}

PyTypeObject* import_type(const char* module, const char* name) {
  const Ref imported = Ref::steal(PyImport_ImportModule(module));
  if (!imported) throw PythonError();
  PyObject* type = PyObject_GetAttrString(imported.get(), name);
  if (!type) throw PythonError();
  return reinterpret_cast<PyTypeObject*>(type);
}

bool is_enum(PyTypeObject* type) {
  static PyTypeObject* enum_type = import_type("enum", "Enum");
  return PyType_IsSubtype(type, enum_type);
}

// A number or truth value of NumPy; types that code derives from these may hold more.
bool is_numpy_scalar(PyTypeObject* type) {
  static PyTypeObject* number = import_type("numpy", "number");
  static PyTypeObject* boolean = import_type("numpy", "bool_");
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         (type == boolean || PyType_IsSubtype(type, number));
}

bool is_partial(PyTypeObject* type) {
  static PyTypeObject* partial_type = import_type("functools", "partial");
  return type == partial_type;
}

bool is_identity_type(PyTypeObject* type) {
  for (const Ref& registered : identity_types()) {
    if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(registered.get()))) return true;
  }
  return type == &PyModule_Type || type == &PyProperty_Type || type == &PyStaticMethod_Type ||
         type == &PyClassMethod_Type || type == &PyWrapperDescr_Type ||
         type == &PyMethodDescr_Type || type == &PyGetSetDescr_Type ||
         type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type ||
         type == &PyEllipsis_Type || type == &THPDtypeType || type == &THPLayoutType ||
         type == &THPMemoryFormatType || type == &PyCode_Type;
}

// The innermost base that is not a class statement: it decides what C state instances hold.
PyTypeObject* native_base(PyTypeObject* type) {
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    // Heap types made by C extensions have C state that nothing here can read; class statements
    // are recognized by their allocation of __dict__, __weakref__ and __slots__ alone.
    PyTypeObject* base = type->tp_base;
    if (!base) return type;
    type = base;
  }
  return type;
}

void add_slot(Py_ssize_t offset, const char* name, TypeInfo* info) {
  const auto known = std::find(info->slot_names.begin(), info->slot_names.end(), name);
  const bool alone = known == info->slot_names.end();
  if (!alone) info->slot_keys[static_cast<size_t>(known - info->slot_names.begin())] = Ref();
  info->slots.push_back(offset);
  info->slot_names.emplace_back(name);
  info->slot_keys.push_back(alone ? Ref::steal(PyUnicode_InternFromString(name)) : Ref());
}

// Members that __slots__ declared, over the whole class hierarchy. False where a member is not a
// Python object and so was not declared by __slots__.
bool collect_slots(PyTypeObject* type, TypeInfo* info) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE) || !base->tp_dict) continue;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(base->tp_dict, &position, &key, &value)) {
      if (!Py_IS_TYPE(value, &PyMemberDescr_Type)) continue;
      if (PyUnicode_CompareWithASCIIString(key, "default_factory") == 0) continue;  // added apart
      const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(value)->d_member;
      if (member->type != T_OBJECT_EX) return false;
      add_slot(member->offset, member->name, info);
    }
  }
  return true;
}

void add_member(PyTypeObject* type, const char* name, TypeInfo* info) {
  const Ref descriptor =
      Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor) throw PythonError();
  if (!Py_IS_TYPE(descriptor.get(), &PyMemberDescr_Type)) return;
  const auto* member = reinterpret_cast<PyMemberDescrObject*>(descriptor.get())->d_member;
  add_slot(member->offset, name, info);
}

bool is_class_statement(PyTypeObject* type) {
  // Types created by `class` use the generic allocator and deallocator of heap types, and define
  // __module__ in their own dictionary. C heap types of the standard library that hold state in C
  // (locks, generators, iterators) have a tp_base of `object` and a larger basic size.
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  PyTypeObject* base = type->tp_base;
  if (!base) return false;
  return base == &PyBaseObject_Type || !(base->tp_flags & Py_TPFLAGS_HEAPTYPE) ||
         is_class_statement(base);
}

// What operators with several results return (torch.max, say): tuples with names for their items.
bool is_torch_result(PyTypeObject* type) {
  return type->tp_base == &PyTuple_Type &&
         std::strncmp(type->tp_name, "torch.return_types.", 19) == 0;
}

TypeInfo classify(PyTypeObject* type) {
  TypeInfo info;
  info.has_dict = type->tp_dictoffset != 0 || PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT);
  if (type == &_PyWeakref_RefType) {
    info.shape = Shape::kWeakRef;
    info.exact = true;
    return info;
  }
  if (PyType_IsSubtype(type, &PyType_Type)) {
    info.shape = Shape::kClass;
    info.exact = true;
    return info;
  }
  if (is_enum(type) || is_identity_type(type)) {
    info.shape = Shape::kIdentity;
    return info;
  }
  static PyTypeObject* torch_size = import_type("torch", "Size");
  static PyTypeObject* deque = import_type("collections", "deque");
  if (type == deque) {
    info.shape = Shape::kDeque;
    info.exact = true;
    return info;
  }
  const struct {
    PyTypeObject* type;
    Shape shape;
    bool named = false;  // another type has this shape, too
  } exact[] = {
      {&PyLong_Type, Shape::kInt},
      {&PyFloat_Type, Shape::kFloat},
      {&PyComplex_Type, Shape::kComplex},
      {&PyUnicode_Type, Shape::kString},
      {&PyBytes_Type, Shape::kBytes},
      {&PyTuple_Type, Shape::kTuple},
      {&PyList_Type, Shape::kList},
      {&PyDict_Type, Shape::kDict},
      {&PySet_Type, Shape::kSet},
      {&PyFrozenSet_Type, Shape::kSet, true},
      {&PyMethod_Type, Shape::kMethod},
      {&PyFunction_Type, Shape::kFunction},
      {&PyCFunction_Type, Shape::kBuiltin},
      {&PyRange_Type, Shape::kRange},
      {&PySlice_Type, Shape::kSlice},
      {&PyODict_Type, Shape::kDict, true},
      {torch_size, Shape::kTuple, true},
      {&THPDeviceType, Shape::kDevice},
      {&PyBaseObject_Type, Shape::kIdentity},
  };
  for (const auto& entry : exact) {
    if (type == entry.type) {
      info.shape = entry.shape;
      info.exact = true;
      info.named = entry.named;
      return info;
    }
  }
  if (is_torch_result(type)) {
    info.shape = Shape::kTuple;
    info.exact = true;
    info.named = true;
    return info;
  }
  if (is_numpy_scalar(type)) {
    info.shape = Shape::kNumpyScalar;
    info.exact = true;
    info.named = true;
    return info;
  }
  static PyTypeObject* simple_namespace = import_type("types", "SimpleNamespace");
  if (type == simple_namespace) {
    info.shape = Shape::kObject;
    return info;
  }
  if (is_partial(type)) {
    info.shape = Shape::kPartial;
    return info;
  }
  static PyTypeObject* defaultdict = import_type("collections", "defaultdict");
  if (PyType_IsSubtype(type, defaultdict)) {
    if (type != defaultdict && !(is_class_statement(type) && collect_slots(type, &info)))
      return info;
    add_member(defaultdict, "default_factory", &info);
    info.shape = Shape::kDict;
    return info;
  }
  if (!is_class_statement(type) || !collect_slots(type, &info)) return info;
  PyTypeObject* base = native_base(type);
  for (const auto& entry : exact) {
    if (base == entry.type && entry.shape != Shape::kIdentity) info.shape = entry.shape;
  }
  if (base == &PyBaseObject_Type) {
    // What remains besides the dictionary, weak references and slots would be C state.
    const Py_ssize_t extra = type->tp_basicsize - PyBaseObject_Type.tp_basicsize;
    const Py_ssize_t known = static_cast<Py_ssize_t>(sizeof(PyObject*)) *
                             (static_cast<Py_ssize_t>(info.slots.size()) +
                              (type->tp_dictoffset > 0) + (type->tp_weaklistoffset > 0));
    info.shape = extra <= known ? Shape::kObject : Shape::kUnsupported;
  }
  return info;
}

}  // namespace

const TypeInfo& type_info(PyTypeObject* type) {
  static auto* cache = new TypeMap<TypeInfo>();
  if (const TypeInfo* known = cache->find(type)) return *known;
  TypeInfo info = classify(type);  // may describe other types first
  return cache->add(type, std::move(info));
}

bool holds_state(Shape shape) {
  switch (shape) {
    case Shape::kTuple:
    case Shape::kList:
    case Shape::kDeque:
    case Shape::kDict:
    case Shape::kSet:
    case Shape::kObject:
    case Shape::kMethod:
    case Shape::kPartial:
    case Shape::kWeakRef:
      return true;
    default:
      return false;
  }
}

void register_identity_type(PyObject* type) {
  identity_types().push_back(Ref::borrow(type));
  TypeMapBase::forget_in_all(reinterpret_cast<PyTypeObject*>(type));
}

}  // namespace trident::guards
