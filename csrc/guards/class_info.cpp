#include "guards/class_info.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <map>

#include "guards/library.h"
#include "guards/type_info.h"
#include "guards/type_map.h"

namespace trident::guards {
namespace {

// A class attribute as it was, held no stronger than needed: a class is reached from its own
// methods, so that strong references would keep every class alive for good.
struct Seen {
  PyObject* address;
  Ref held;  // the object itself, or a weak reference to it
  bool weak;

  bool still(PyObject* now) const {
    return now == address && (!weak || PyWeakref_GET_OBJECT(held.get()) == now);
  }
};

void see(PyObject* value, std::vector<Seen>& seen) {
  if (!PyObject_IS_GC(value)) {
    seen.push_back({value, Ref::borrow(value), false});  // cannot be part of a cycle
  } else if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) {
    Ref weak = Ref::steal(PyWeakref_NewRef(value, nullptr));
    if (!weak) throw PythonError();
    seen.push_back({value, std::move(weak), true});
  } else {
    // Containers of the user's classes are compared by content (class_state); descriptors by what
    // they wrap. The address tells the rest apart.
    seen.push_back({value, Ref(), false});
    for (const char* part : {"fget", "fset", "fdel", "__func__"}) {
      if (!Py_IS_TYPE(value, &PyProperty_Type) && !Py_IS_TYPE(value, &PyStaticMethod_Type) &&
          !Py_IS_TYPE(value, &PyClassMethod_Type)) {
        break;
      }
      const Ref inner = Ref::steal(PyObject_GetAttrString(value, part));
      if (!inner) {
        PyErr_Clear();
      } else {
        see(inner.get(), seen);
      }
    }
    if (PyTuple_CheckExact(value)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        see(PyTuple_GET_ITEM(value, i), seen);
      }
    }
  }
}

struct Contents {
  std::vector<Seen> seen;
  std::vector<std::pair<std::string, size_t>> attributes;  // by name, the place of the value
};

struct ClassInfo {
  unsigned int version = 0;
  uint64_t epoch = 0;
  uint64_t last_epoch = 0;
  // What the class and its bases defined lately, newest last. A trace patches torch.nn.Module and
  // puts it back, which must not make another class of every module, whichever thread looks when.
  std::vector<std::pair<Contents, uint64_t>> history;
  unsigned int state_version = 0;
  std::vector<std::pair<PyObject*, PyObject*>> state;
};

constexpr size_t kHistory = 4;

bool has_contents(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_dict;
}

// Bases, names and values of every class statement in the hierarchy.
Contents read_contents(PyTypeObject* type) {
  Contents now;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    auto* base_type = reinterpret_cast<PyTypeObject*>(base);
    if (!has_contents(base_type)) continue;
    see(base, now.seen);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(base_type->tp_dict, &position, &key, &value)) {
      // What pickling an instance keeps with its class, for itself.
      if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "__slotnames__") == 0) {
        continue;
      }
      see(key, now.seen);
      const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
      if (name) {
        now.attributes.emplace_back(name, now.seen.size());
      } else {
        PyErr_Clear();
      }
      see(value, now.seen);
    }
  }
  return now;
}

bool same_contents(const Contents& known, const Contents& now) {
  return std::equal(known.seen.begin(), known.seen.end(), now.seen.begin(), now.seen.end(),
                    [](const Seen& a, const Seen& b) { return a.still(b.address); });
}

ClassInfo& info_of(PyTypeObject* type) {
  static auto* classes = new TypeMap<ClassInfo>();
  ClassInfo* known = classes->find(type);
  return known ? *known : classes->add(type, {});
}

bool is_dunder(PyObject* name) {
  if (!PyUnicode_Check(name)) return false;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  return length > 4 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, 1) == '_' &&
         PyUnicode_READ_CHAR(name, length - 1) == '_';
}

// Whether the contents of a class attribute matter beyond its identity. Functions are guarded where
// they run; other descriptors of C (properties, slots, tuple getters) are immutable.
bool holds_class_state(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (PyType_Check(value)) return is_user_class(reinterpret_cast<PyTypeObject*>(value));
  if (THPVariable_Check(value)) return true;
  const Shape shape = type_info(type).shape;
  if (shape != Shape::kUnsupported) return holds_state(shape);
  return type->tp_descr_get == nullptr;
}

}  // namespace

unsigned int type_version(PyTypeObject* type) {
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
    // A look-up gives the type a tag.
    const Ref ignored =
        Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__init__"));
    if (!ignored) PyErr_Clear();
  }
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

uint64_t class_epoch(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 0;
  ClassInfo& known = info_of(type);
  const unsigned int version = type_version(type);
  if (version != 0 && version == known.version) return known.epoch;
  Contents now = read_contents(type);
  const auto found =
      std::find_if(known.history.begin(), known.history.end(),
                   [&](const auto& earlier) { return same_contents(earlier.first, now); });
  if (found != known.history.end()) {
    std::rotate(found, found + 1, known.history.end());
  } else {
    if (known.history.size() == kHistory) known.history.erase(known.history.begin());
    known.history.emplace_back(std::move(now), ++known.last_epoch);
  }
  known.epoch = known.history.back().second;
  known.version = version;
  return known.epoch;
}

std::vector<ClassChange> class_changes(PyTypeObject* type, uint64_t before, uint64_t now) {
  // By name, the value before and after. The class comes before its bases, so the first one counts.
  std::map<std::string, std::pair<const Seen*, const Seen*>> values;
  int found = 0;
  for (const auto& [contents, epoch] : info_of(type).history) {
    if (epoch != before && epoch != now) continue;
    ++found;
    for (const auto& [name, place] : contents.attributes) {
      auto& pair = values[name];
      const Seen*& value = epoch == before ? pair.first : pair.second;
      if (!value) value = &contents.seen[place];
    }
  }
  std::vector<ClassChange> changes;
  if (found < 2) return changes;
  const auto object_of = [](const Seen* value) {
    if (!value || !value->weak) return value ? value->held : Ref();
    PyObject* object = PyWeakref_GET_OBJECT(value->held.get());
    return object == Py_None ? Ref() : Ref::borrow(object);
  };
  for (const auto& [name, pair] : values) {
    const auto& [old_value, new_value] = pair;
    if (old_value && new_value && old_value->still(new_value->address)) continue;
    changes.push_back({name, object_of(old_value), object_of(new_value)});
  }
  return changes;
}

bool is_user_class(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || !type->tp_dict) return false;
  static auto* known = new TypeMap<bool>();
  if (const bool* answer = known->find(type)) return *answer;
  PyObject* name = PyDict_GetItemString(type->tp_dict, "__module__");
  PyObject* module =
      name && PyUnicode_Check(name) ? PyDict_GetItem(PyImport_GetModuleDict(), name) : nullptr;
  // A class whose module is gone may be anybody's.
  const bool user = !module || !PyModule_Check(module) || !is_library(PyModule_GetDict(module));
  known->add(type, user);
  return user;
}

const std::vector<std::pair<PyObject*, PyObject*>>& class_state(PyTypeObject* type) {
  static const auto* none = new std::vector<std::pair<PyObject*, PyObject*>>();
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return *none;
  const unsigned int version = type_version(type);
  ClassInfo& known = info_of(type);
  if (version != 0 && version == known.state_version) return known.state;
  std::vector<std::pair<PyObject*, PyObject*>> state;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (!is_user_class(base)) continue;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(base->tp_dict, &position, &key, &value)) {
      if (!is_dunder(key) && holds_class_state(value)) state.emplace_back(key, value);
    }
  }
  known.state = std::move(state);
  known.state_version = version;
  return known.state;
}

}  // namespace trident::guards
