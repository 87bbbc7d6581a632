#include "guards/walker.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>

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
  return true;
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
  if (info.shape == Shape::kUnsupported) {
    return fail(std::string("an object of type ") + type->tp_name +
                ", whose state cannot be read or guarded");
  }
  if (info.shape == Shape::kIdentity ||
      (functions_closed_ && info.shape == Shape::kFunction)) {
    append_identity(object);
    return true;
  }
  if (!info.exact) {
    walk_.words.push_back(tagged(Tag::kType));
    walk_.words.push_back(address_of(type));
    walk_.words.push_back(class_epoch(type));
    walk_.identities.push_back(reinterpret_cast<PyObject*>(type));
    if (watch_) watch_->add_type(type);
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
    case Shape::kObject:
      walk_.words.push_back(tagged(Tag::kObject));
      break;
    default:
      ok = fail(std::string("an object of type ") + Py_TYPE(object)->tp_name);
  }
  if (ok && !info.exact) ok = visit_attributes(object, info);
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
  return true;
}

bool Walker::visit_set(PyObject* set) {
  if (watch_) watch_->add_set(set);
  // Iteration order is not part of a set's value: sort what each element alone is described by.
  std::vector<std::vector<uint64_t>> elements;
  const Ref iterator = Ref::steal(PyObject_GetIter(set));
  if (!iterator) throw PythonError();
  while (Ref element = Ref::steal(PyIter_Next(iterator.get()))) {
    Walk alone;
    if (!Walker(alone).visit(element.get())) return fail(alone.unsupported);
    if (!alone.tensors.empty()) return fail("a set of tensors");
    walk_.identities.insert(walk_.identities.end(), alone.identities.begin(),
                            alone.identities.end());
    elements.push_back(std::move(alone.words));
  }
  if (PyErr_Occurred()) throw PythonError();
  std::sort(elements.begin(), elements.end());
  walk_.words.push_back(tagged(Tag::kSet, elements.size()));
  for (const auto& element : elements) {
    walk_.words.insert(walk_.words.end(), element.begin(), element.end());
  }
  return true;
}

bool Walker::visit_attributes(PyObject* object, const TypeInfo& info) {
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

bool Walker::visit_function(PyObject* function) {
  if (watch_) watch_->add_function(function);
  walk_.words.push_back(tagged(Tag::kFunction));
  append_identity(function);
  append_identity(PyFunction_GET_CODE(function));
  for (PyObject* values :
       {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function)}) {
    if (!visit(values ? values : Py_None)) return false;
  }
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
  static auto* known = new std::unordered_map<PyObject*, bool>();
  const auto found = known->find(globals);
  if (found != known->end()) return found->second;
  bool library = false;
  if (library_predicate) {
    const Ref answer = Ref::steal(PyObject_CallOneArg(library_predicate, globals));
    if (!answer) throw PythonError();
    library = answer.get() == Py_True;
  }
  Py_INCREF(globals);  // the address must not be reused by another module
  known->emplace(globals, library);
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
