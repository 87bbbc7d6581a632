#include "guards/walker.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>

#include "guards/class_info.h"
#include "guards/cpython_layout.h"
#include "guards/recorder.h"
#include "guards/tensor_facts.h"
#include "guards/watch.h"
#include "guards/words.h"

namespace trident::guards {
namespace {

constexpr uint32_t kMaxDepth = 400;
constexpr size_t kMaxWords = size_t{1} << 22;
constexpr size_t kFewTensors = 16;

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

void append_bytes(std::vector<uint64_t>& words, const void* data, size_t size) {
  const size_t start = words.size();
  words.resize(start + (size + 7) / 8, 0);
  if (size) std::memcpy(words.data() + start, data, size);
}

}  // namespace

void Walk::clear() {
  words.clear();
  tensors.clear();
  tensor_words.clear();
  containers.clear();
  identities.clear();
  unsupported.clear();
}

bool Walker::fail(std::string reason) {
  if (walk_.unsupported.empty()) walk_.unsupported = std::move(reason);
  return false;
}

void Walker::append_identity(PyObject* object) {
  walk_.words.push_back(tagged(Tag::kIdentity));
  walk_.words.push_back(address_of(object));
  walk_.identities.push_back(object);
}

void Walker::append_string(PyObject* string) {
  const auto length = static_cast<size_t>(PyUnicode_GET_LENGTH(string));
  const auto kind = static_cast<size_t>(PyUnicode_KIND(string));
  walk_.words.push_back(tagged(Tag::kString, length << 3 | kind));
  append_bytes(walk_.words, PyUnicode_DATA(string), length * kind);
}

bool Walker::visit(PyObject* object) {
  if (THPVariable_CheckTypeExact(Py_TYPE(object))) return visit_tensor(object);
  if (object == Py_None) {
    walk_.words.push_back(tagged(Tag::kNone));
    return true;
  }
  return visit_slow(object);
}

bool Walker::visit_tensor(PyObject* object) {
  const c10::TensorImpl* tensor = THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (!tensor) return fail("an undefined tensor");
  // A handful of tensors, the usual case of a call's arguments, is searched without hashing.
  if (met_tensors_.empty() && walk_.tensors.size() < kFewTensors) {
    for (size_t i = 0; i < walk_.tensors.size(); ++i) {
      if (walk_.tensors[i] == object) {
        walk_.words.push_back(tagged(Tag::kSameTensor, i));
        return true;
      }
    }
  } else {
    if (met_tensors_.empty()) {
      for (size_t i = 0; i < walk_.tensors.size(); ++i) {
        met_tensors_.emplace(walk_.tensors[i], static_cast<uint32_t>(i));
      }
    }
    const auto [found, added] =
        met_tensors_.emplace(object, static_cast<uint32_t>(walk_.tensors.size()));
    if (!added) {
      walk_.words.push_back(tagged(Tag::kSameTensor, found->second));
      return true;
    }
  }
  if (const char* reason = tensor_unsupported(*tensor)) return fail(reason);
  if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    walk_.words.push_back(tagged(Tag::kType));
    walk_.words.push_back(address_of(Py_TYPE(object)));
  }
  walk_.tensors.push_back(object);
  walk_.tensor_words.push_back(static_cast<uint32_t>(walk_.words.size()));
  append_tensor(*tensor, walk_.words);
  return tensor_attributes(object) == nullptr || visit_tensor_attributes(object);
}

bool Walker::visit_tensor_attributes(PyObject* tensor) {
  walk_.words.push_back(tagged(Tag::kAttributes));
  return visit_dict(tensor_attributes(tensor));
}

bool Walker::visit_int(PyObject* object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (!overflow) {
    walk_.words.push_back(tagged(Tag::kInt));
    walk_.words.push_back(static_cast<uint64_t>(value));
    return true;
  }
  const Ref digits = Ref::steal(PyLong_Type.tp_repr(object));
  if (!digits) throw PythonError();
  walk_.words.push_back(tagged(Tag::kBigInt));
  append_string(digits.get());
  return true;
}

bool Walker::visit_slow(PyObject* object) {
  if (object == Py_True || object == Py_False) {
    walk_.words.push_back(tagged(object == Py_True ? Tag::kTrue : Tag::kFalse));
    return true;
  }
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
    return fail(std::string("a tensor subclass, ") + type->tp_name);
  }
  const TypeInfo& info = type_info(type);
  switch (info.shape) {
    case Shape::kUnsupported:
      if (!lenient_) {
        return fail(std::string("an object of type ") + type->tp_name +
                    ", whose state cannot be read or guarded");
      }
      [[fallthrough]];
    case Shape::kIdentity:
      append_identity(object);
      return true;
    case Shape::kClass:
      return visit_class(reinterpret_cast<PyTypeObject*>(object));
    case Shape::kBuiltin:
      return visit_builtin(object);
    default:
      break;
  }
  if (info.named || !info.exact) {
    walk_.words.push_back(tagged(Tag::kType));
    walk_.words.push_back(address_of(type));
  }
  if (!info.exact) {
    walk_.words.push_back(class_epoch(type));
    walk_.identities.push_back(reinterpret_cast<PyObject*>(type));
    if (watch_) watch_->add_type(type);
    if (!class_state(type).empty() && !visit_class_state(type)) return false;
  }
  switch (info.shape) {
    case Shape::kInt:
      visit_int(object);
      break;
    case Shape::kFloat:
      walk_.words.push_back(tagged(Tag::kFloat));
      walk_.words.push_back(bits_of(PyFloat_AS_DOUBLE(object)));
      break;
    case Shape::kComplex: {
      const Py_complex value = PyComplex_AsCComplex(object);
      walk_.words.push_back(tagged(Tag::kComplex));
      walk_.words.push_back(bits_of(value.real));
      walk_.words.push_back(bits_of(value.imag));
      break;
    }
    case Shape::kString:
      append_string(object);
      break;
    case Shape::kBytes:
      walk_.words.push_back(tagged(Tag::kBytes, static_cast<uint64_t>(PyBytes_GET_SIZE(object))));
      append_bytes(walk_.words, PyBytes_AS_STRING(object),
                   static_cast<size_t>(PyBytes_GET_SIZE(object)));
      break;
    case Shape::kDevice: {
      const c10::Device device = reinterpret_cast<THPDevice*>(object)->device;
      walk_.words.push_back(tagged(Tag::kDevice, static_cast<uint64_t>(device.type()) << 8 |
                                                     static_cast<uint8_t>(device.index())));
      break;
    }
    default:
      return visit_container(object, info);
  }
  return info.exact || !info.has_dict || visit_attributes(object, info);
}

bool Walker::visit_container(PyObject* object, const TypeInfo& info) {
  const auto [found, added] = met_.emplace(object, static_cast<uint32_t>(walk_.containers.size()));
  if (!added) {
    walk_.words.push_back(tagged(Tag::kReference, found->second));
    return true;
  }
  if (depth_ >= kMaxDepth) return fail("objects nested more than 400 deep");
  if (walk_.words.size() > kMaxWords)
    return fail("arguments or attributes with millions of entries");
  walk_.containers.push_back(object);
  ++depth_;
  bool ok = true;
  switch (info.shape) {
    case Shape::kTuple:
      walk_.words.push_back(tagged(Tag::kTuple, static_cast<uint64_t>(PyTuple_GET_SIZE(object))));
      for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(object); ++i) {
        ok = visit(PyTuple_GET_ITEM(object, i));
      }
      break;
    case Shape::kList:
      if (watch_) watch_->add_list(object);
      walk_.words.push_back(tagged(Tag::kList, static_cast<uint64_t>(PyList_GET_SIZE(object))));
      for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(object); ++i) {
        ok = visit(PyList_GET_ITEM(object, i));
      }
      break;
    case Shape::kDict:
      ok = visit_dict(object);
      break;
    case Shape::kSet:
      ok = visit_set(object);
      break;
    case Shape::kFunction:
      ok = visit_function(object);
      break;
    case Shape::kMethod:
      walk_.words.push_back(tagged(Tag::kMethod));
      ok = visit(PyMethod_GET_FUNCTION(object)) && visit(PyMethod_GET_SELF(object));
      break;
    case Shape::kPartial: {
      static const char* const names[] = {"func", "args", "keywords", nullptr};
      walk_.words.push_back(tagged(Tag::kPartial));
      ok = visit_members(object, names);
      break;
    }
    case Shape::kRange:
    case Shape::kSlice: {
      static const char* const names[] = {"start", "stop", "step", nullptr};
      walk_.words.push_back(tagged(Tag::kRange, info.shape == Shape::kSlice));
      ok = visit_members(object, names);
      break;
    }
    case Shape::kWeakRef: {
      if (watch_) watch_->add_weak_reference(object);
      walk_.words.push_back(tagged(Tag::kWeakRef));
      PyObject* referent = PyWeakref_GET_OBJECT(object);
      const auto known = std::find(walk_.tensors.begin(), walk_.tensors.end(), referent);
      if (referent == Py_None || met_.count(referent) || known != walk_.tensors.end()) {
        ok = visit(referent);
      } else if (lenient_) {
        append_identity(object);
      } else {
        // Reading it here would keep it alive, and its end is what the reference is there to tell.
        ok = fail(std::string("a weak reference to a ") + Py_TYPE(referent)->tp_name +
                  " that no attribute leads to");
      }
      break;
    }
    case Shape::kObject:
      walk_.words.push_back(tagged(Tag::kObject));
      break;
    default:
      ok = fail(std::string("an object of type ") + Py_TYPE(object)->tp_name);
  }
  if (ok && !info.exact) ok = visit_attributes(object, info);
  if (ok && PyODict_CheckExact(object)) {
    PyObject** attributes = _PyObject_GetDictPtr(object);
    if (attributes && *attributes && PyDict_GET_SIZE(*attributes)) {
      ok = fail("an OrderedDict with attributes of its own");
    }
  }
  --depth_;
  return ok;
}

bool Walker::visit_dict(PyObject* dict) {
  if (watch_) watch_->add_dict(dict);
  walk_.words.push_back(tagged(Tag::kDict, static_cast<uint64_t>(PyDict_Size(dict))));
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (PyUnicode_CheckExact(key)) {
      append_string(key);
    } else if (!visit(key)) {
      return false;
    }
    if (!visit(value)) return false;
  }
  return PyDict_GET_SIZE(dict) < 2 || !PyODict_Check(dict) || visit_order(dict);
}

bool Walker::visit_order(PyObject* dict) {
  // move_to_end() changes the order of an ordered dictionary, and neither the dictionary's version
  // nor the order in which PyDict_Next finds the entries.
  const std::vector<PyObject*> keys = ordered_keys(dict);
  if (watch_) watch_->add_order(dict, keys);
  std::unordered_map<PyObject*, uint64_t> positions;
  PyObject* key;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, nullptr)) positions.emplace(key, positions.size());
  bool moved = false;
  for (size_t i = 0; i < keys.size(); ++i) moved = moved || positions[keys[i]] != i;
  if (!moved) return true;
  walk_.words.push_back(tagged(Tag::kOrder, keys.size()));
  for (PyObject* each : keys) walk_.words.push_back(positions[each]);
  return true;
}

bool Walker::visit_set(PyObject* set) {
  if (watch_) watch_->add_set(set);
  // The order of iteration counts: code that runs over the set sees it. Equal sets of numbers or
  // strings that were built alike have the same.
  walk_.words.push_back(tagged(Tag::kSet, static_cast<uint64_t>(PySet_GET_SIZE(set))));
  for (PyObject* element : set_items(set)) {
    const size_t containers = walk_.containers.size();
    const size_t tensors = walk_.tensors.size();
    if (!visit(element)) return false;
    if (walk_.tensors.size() != tensors) return fail("a set of tensors");
    // The elements of a shadow's sets are the user's own, so only immutable ones will do.
    for (size_t i = containers; i < walk_.containers.size(); ++i) {
      if (!PyTuple_CheckExact(walk_.containers[i]) && !PyFrozenSet_CheckExact(walk_.containers[i]))
        return fail("a set of objects that can change");
    }
  }
  return true;
}

bool Walker::visit_attributes(PyObject* object, const TypeInfo& info) {
  if (watch_) watch_->add_object(object, info.has_dict);
  if (!info.slots.empty()) {
    if (watch_) watch_->add_slots(object, info);
    walk_.words.push_back(tagged(Tag::kSlots, info.slots.size()));
    for (const Py_ssize_t offset : info.slots) {
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
      if (!value) {
        walk_.words.push_back(tagged(Tag::kMissing));
      } else if (!visit(value)) {
        return false;
      }
    }
  }
  if (!info.has_dict) return true;
  const Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) throw PythonError();
  return visit_dict(dict.get());
}

bool Walker::visit_members(PyObject* object, const char* const* names) {
  for (; *names; ++names) {
    // These are C members: reading them runs no Python code, and the object keeps the value alive.
    const Ref value = Ref::steal(PyObject_GetAttrString(object, *names));
    if (!value) throw PythonError();
    if (!visit(value.get())) return false;
  }
  return true;
}

bool Walker::visit_builtin(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  if (self && !PyModule_Check(self) && !PyType_Check(self) && !lenient_) {
    return fail(std::string("a method of C bound to an object of type ") + Py_TYPE(self)->tp_name);
  }
  append_identity(function);
  return true;
}

bool Walker::visit_class(PyTypeObject* type) {
  append_identity(reinterpret_cast<PyObject*>(type));
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return true;
  if (watch_) watch_->add_type(type);
  walk_.words.push_back(tagged(Tag::kClass));
  walk_.words.push_back(class_epoch(type));
  return visit_class_state(type);
}

bool Walker::visit_class_state(PyTypeObject* type) {
  if (!met_classes_.insert(type).second) return true;
  // A copy: describing a value may add to the table that this comes from.
  const std::vector<std::pair<PyObject*, PyObject*>> state = class_state(type);
  for (const auto& [name, value] : state) {
    walk_.words.push_back(tagged(Tag::kClassAttribute));
    append_string(name);
    if (!visit(value)) return false;
  }
  return true;
}

bool Walker::visit_function_parts(PyObject* function) {
  if (watch_) watch_->add_function(function);
  append_identity(PyFunction_GET_CODE(function));
  for (PyObject* values :
       {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function)}) {
    if (!visit(values ? values : Py_None)) return false;
  }
  PyObject* attributes = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  if (!attributes || PyDict_GET_SIZE(attributes) == 0) return true;
  walk_.words.push_back(tagged(Tag::kAttributes));
  return visit_dict(attributes);
}

bool Walker::visit_function(PyObject* function) {
  walk_.words.push_back(tagged(Tag::kFunction));
  append_identity(function);
  if (!visit_function_parts(function)) return false;
  if (PyObject* closure = PyFunction_GET_CLOSURE(function)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(closure, i);
      PyObject* value = PyCell_GET(cell);
      if (watch_) watch_->add_cell(cell);
      if (!value) {
        walk_.words.push_back(tagged(Tag::kMissing));
      } else if (!visit(value)) {
        return false;
      }
    }
  }
  for (const auto& [name, value] : stateful_globals(function)) {
    if (watch_) watch_->add_global(PyFunction_GET_GLOBALS(function), name);
    append_string(name);
    if (!visit(value)) return false;
  }
  return true;
}

namespace {
PyObject* library_predicate = nullptr;
}

bool is_library(PyObject* globals) {
  // A shadow's functions have a copy of their globals, which names the original.
  if (PyObject* original = PyDict_GetItemString(globals, "__trident_globals__")) {
    return is_library(original);
  }
  // By file, where there is one: holding the dictionary itself would keep its module alive.
  static auto* known = new std::unordered_map<std::string, bool>();
  PyObject* file = PyDict_GetItemString(globals, "__file__");
  const char* path = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
  if (path) {
    const auto found = known->find(path);
    if (found != known->end()) return found->second;
  }
  PyErr_Clear();
  if (!library_predicate) return false;
  const std::string key = path ? path : "";
  const Ref answer = Ref::steal(PyObject_CallOneArg(library_predicate, globals));
  if (!answer) throw PythonError();
  const bool library = answer.get() == Py_True;
  if (path) known->emplace(key, library);
  return library;
}

namespace {

void collect_names(PyObject* code, std::vector<PyObject*>& names) {
  const Ref used = Ref::steal(PyObject_GetAttrString(code, "co_names"));
  const Ref constants = Ref::steal(PyObject_GetAttrString(code, "co_consts"));
  if (!used || !constants) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(used.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(used.get(), i);  // kept alive by the code object
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants.get()); ++i) {
    PyObject* constant = PyTuple_GET_ITEM(constants.get(), i);
    if (PyCode_Check(constant)) collect_names(constant, names);
  }
}

bool holds_state(PyObject* value) {
  if (THPVariable_CheckTypeExact(Py_TYPE(value))) return true;
  switch (type_info(Py_TYPE(value)).shape) {
    case Shape::kTuple:
    case Shape::kList:
    case Shape::kDict:
    case Shape::kSet:
    case Shape::kObject:
    case Shape::kMethod:
    case Shape::kPartial:
    case Shape::kWeakRef:
      return true;
    case Shape::kFunction:
      return !is_library(PyFunction_GET_GLOBALS(value));
    default:
      return false;
  }
}

}  // namespace

void set_library_predicate(PyObject* predicate) {
  Py_XINCREF(predicate);
  Py_XSETREF(library_predicate, predicate);
}

std::vector<std::pair<PyObject*, PyObject*>> stateful_globals(PyObject* function) {
  std::vector<std::pair<PyObject*, PyObject*>> found;
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  if (is_library(globals)) return found;
  std::vector<PyObject*> names;
  collect_names(PyFunction_GET_CODE(function), names);
  for (PyObject* name : names) {
    PyObject* value = PyDict_GetItemWithError(globals, name);
    if (!value && PyErr_Occurred()) throw PythonError();
    if (value && holds_state(value)) found.emplace_back(name, value);
  }
  return found;
}

}  // namespace trident::guards
