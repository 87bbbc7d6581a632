#include "guards/watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030d0000
#error "Trident supports CPython 3.11 and 3.12"
#endif

namespace trident::guards {
namespace {

// CPython 3.12 marks the tag as deprecated for extensions, but still maintains it; dictionary
// watchers, its successor, arrive with the version that drops the tag.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
inline uint64_t version_of(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#pragma GCC diagnostic pop

template <typename Items>
bool same_items(const Items& items, PyObject* const* objects, size_t count) {
  if (items.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!items[i].is(objects[i])) return false;
  }
  return true;
}

std::vector<PyObject*> read_set(PyObject* set) {
  std::vector<PyObject*> items;
  const Ref iterator = Ref::steal(PyObject_GetIter(set));
  if (!iterator) throw PythonError();
  while (Ref item = Ref::steal(PyIter_Next(iterator.get()))) items.push_back(item.get());
  if (PyErr_Occurred()) throw PythonError();
  return items;
}

struct FunctionParts {
  PyObject* parts[4];
  explicit FunctionParts(PyObject* function)
      : parts{PyFunction_GET_CODE(function), PyFunction_GET_DEFAULTS(function),
              PyFunction_GET_KW_DEFAULTS(function), PyFunction_GET_CLOSURE(function)} {}
};

}  // namespace

uint64_t dict_version(PyObject* dict) { return version_of(dict); }

void Watch::add_dict(PyObject* dict) { dicts_.push_back({Ref::borrow(dict), version_of(dict)}); }

Watch::Item::Item(PyObject* object) : object_(object) {
  if (object && !THPVariable_Check(object)) keep_ = Ref::borrow(object);
}

void Watch::add_list(PyObject* list) {
  PyObject** items = reinterpret_cast<PyListObject*>(list)->ob_item;
  lists_.push_back({Ref::borrow(list), {items, items + PyList_GET_SIZE(list)}});
}

void Watch::add_set(PyObject* set) {
  const std::vector<PyObject*> items = read_set(set);
  sets_.push_back({Ref::borrow(set), {items.begin(), items.end()}});
}

void Watch::add_slots(PyObject* object, const TypeInfo& info) {
  Slots slots{Ref::borrow(object), info.slots, {}};
  for (const Py_ssize_t offset : info.slots) {
    slots.values.emplace_back(
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset));
  }
  slots_.push_back(std::move(slots));
}

void Watch::add_cell(PyObject* cell) {
  cells_.push_back({Ref::borrow(cell), Item(PyCell_GET(cell))});
}

void Watch::add_function(PyObject* function) {
  const FunctionParts now(function);
  functions_.push_back({Ref::borrow(function), {now.parts, now.parts + 4}});
}

void Watch::add_type(PyTypeObject* type) {
  for (const Type& known : types_) {
    if (known.type.get() == reinterpret_cast<PyObject*>(type)) return;
  }
  types_.push_back({Ref::borrow(reinterpret_cast<PyObject*>(type)), type_version(type)});
}

void Watch::add_global(PyObject* globals, PyObject* name) {
  auto found = std::find_if(globals_.begin(), globals_.end(),
                            [&](const Globals& other) { return other.dict.get() == globals; });
  if (found == globals_.end()) {
    globals_.push_back({Ref::borrow(globals), version_of(globals), {}});
    found = globals_.end() - 1;
  }
  PyObject* value = PyDict_GetItemWithError(globals, name);
  if (!value && PyErr_Occurred()) throw PythonError();
  found->names.push_back({Ref::borrow(name), Item(value)});
}

bool Watch::types_unchanged() const {
  for (const Type& watched : types_) {
    if (type_version(reinterpret_cast<PyTypeObject*>(watched.type.get())) != watched.version ||
        watched.version == 0) {
      return false;
    }
  }
  return true;
}

bool Watch::unchanged() {
  for (const Dict& watched : dicts_) {
    if (version_of(watched.dict.get()) != watched.version) return false;
  }
  for (const Items& watched : lists_) {
    PyObject* list = watched.container.get();
    if (!same_items(watched.items, reinterpret_cast<PyListObject*>(list)->ob_item,
                    static_cast<size_t>(PyList_GET_SIZE(list)))) {
      return false;
    }
  }
  for (const Items& watched : sets_) {
    // Most sets of a module are empty; only others need a look inside.
    const auto size = static_cast<size_t>(PySet_GET_SIZE(watched.container.get()));
    if (size != watched.items.size()) return false;
    if (size == 0) continue;
    const std::vector<PyObject*> now = read_set(watched.container.get());
    if (!same_items(watched.items, now.data(), now.size())) return false;
  }
  for (const Slots& watched : slots_) {
    char* base = reinterpret_cast<char*>(watched.object.get());
    for (size_t i = 0; i < watched.offsets.size(); ++i) {
      if (!watched.values[i].is(*reinterpret_cast<PyObject**>(base + watched.offsets[i]))) {
        return false;
      }
    }
  }
  for (const Cell& watched : cells_) {
    if (!watched.value.is(PyCell_GET(watched.cell.get()))) return false;
  }
  for (const Function& watched : functions_) {
    const FunctionParts now(watched.function.get());
    if (!same_items(watched.parts, now.parts, 4)) return false;
  }
  for (Globals& watched : globals_) {
    const uint64_t version = version_of(watched.dict.get());
    if (version == watched.version) continue;
    for (const Global& global : watched.names) {
      PyObject* value = PyDict_GetItemWithError(watched.dict.get(), global.name.get());
      if (!value && PyErr_Occurred()) throw PythonError();
      if (!global.value.is(value)) return false;
    }
    watched.version = version;
  }
  return types_unchanged();
}

void Watch::clear() { *this = Watch(); }

size_t Watch::size() const {
  return dicts_.size() + lists_.size() + sets_.size() + slots_.size() + cells_.size() +
         functions_.size() + types_.size() + globals_.size();
}

}  // namespace trident::guards
