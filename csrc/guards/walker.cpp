// The walk: leaves, and what decides how an object is read.
#include "guards/walker.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "guards/class_info.h"
#include "guards/cpython_layout.h"
#include "guards/tensor_facts.h"
#include "guards/watch.h"
#include "guards/words.h"

namespace trident::guards {
namespace {

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// What a types.MappingProxyType shows, which it keeps for good; borrowed.
PyObject* mapping_of(PyObject* proxy) {
  PyObject* mapping = nullptr;
  const visitproc keep = [](PyObject* held, void* found) {
    *static_cast<PyObject**>(found) = held;
    return 0;
  };
  PyDictProxy_Type.tp_traverse(proxy, keep, &mapping);
  return mapping;
}

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
  scalars.clear();
  closed.clear();
  tensor_positions.clear();
  container_positions.clear();
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

void Walker::append_numpy_scalar(PyObject* object) {
  static PyObject* const method = PyUnicode_InternFromString("tobytes");
  const Ref bytes = Ref::steal(PyObject_CallMethodNoArgs(object, method));  // NumPy's, written in C
  if (!bytes) throw PythonError();
  const auto size = static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()));
  walk_.words.push_back(tagged(Tag::kNumpyScalar, size));
  append_bytes(walk_.words, PyBytes_AS_STRING(bytes.get()), size);
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
  const auto [position, added] =
      walk_.tensor_positions.emplace(object, static_cast<uint32_t>(walk_.tensors.size()));
  if (!added) {
    walk_.words.push_back(tagged(Tag::kSameTensor, position));
    return true;
  }
  if (const char* reason = tensor_unsupported(*tensor)) return fail(reason);
  if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(THPVariableClass)) {
    walk_.words.push_back(tagged(Tag::kType));
    walk_.words.push_back(address_of(Py_TYPE(object)));
  }
  walk_.tensors.push_back(object);
  walk_.tensor_words.push_back(static_cast<uint32_t>(walk_.words.size()));
  append_tensor(*tensor, walk_.words);
  return (!watch_ && tensor_attributes(object) == nullptr) || visit_tensor_attributes(object);
}

bool Walker::visit_tensor_attributes(PyObject* tensor) {
  if (PyObject* attributes = tensor_attributes(tensor)) {
    walk_.words.push_back(tagged(Tag::kAttributes));
    return visit_dict(attributes);
  }
  // What is put into an empty dictionary shows in its version alone.
  if (watch_ && has_only_dict(tensor) && existing_dict(tensor)) {
    watch_->add_dict(existing_dict(tensor));
  }
  return true;
}

void Walker::note_scalar(PyObject* object) {
  if (!scalars_recorded_ || !place_.known) return;
  if (!PyLong_CheckExact(object) && !PyFloat_CheckExact(object)) return;
  walk_.scalars.push_back({static_cast<uint32_t>(walk_.words.size()) - 1, place_.container,
                           place_.key, place_.index, place_.attribute});
}

bool Walker::visit_int(PyObject* object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (!overflow) {
    walk_.words.push_back(tagged(Tag::kInt));
    walk_.words.push_back(static_cast<uint64_t>(value));
    note_scalar(object);
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
      if (type == &PyDictProxy_Type) {
        append_identity(object);
        return visit(mapping_of(object));
      }
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
      note_scalar(object);
      break;
    case Shape::kComplex: {
      const Py_complex value = PyComplex_AsCComplex(object);
      walk_.words.push_back(tagged(Tag::kComplex));
      walk_.words.push_back(bits_of(value.real));
      walk_.words.push_back(bits_of(value.imag));
      break;
    }
    case Shape::kNumpyScalar:
      append_numpy_scalar(object);
      break;
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

}  // namespace trident::guards
