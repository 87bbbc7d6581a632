#include "guards/watch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "guards/class_info.h"
#include "guards/cpython_layout.h"
#include "guards/dict_watch.h"

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030d0000
#error "Trident supports CPython 3.11 and 3.12"
#endif

namespace trident::guards {
namespace {

// CPython 3.12 marks the tag as deprecated for extensions, but still maintains it.
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

// Whether iterating over a set would give these items, without making an iterator.
template <typename Items>
bool same_set(const Items& items, PyObject* object) {
  const auto* set = reinterpret_cast<const PySetObject*>(object);
  if (static_cast<size_t>(set->used) != items.size()) return false;
  if (items.empty()) return true;  // every module has one of these
  auto item = items.begin();
  for (Py_ssize_t i = 0; item != items.end() && i <= set->mask; ++i) {
    const setentry& entry = set->table[i];
    if (entry.key == nullptr || entry.hash == -1) continue;  // empty, or left by a removal
    if (!item->is(entry.key)) return false;
    ++item;
  }
  return item == items.end();
}

std::vector<PyObject*> read_all(Ref iterator, iternextfunc next) {
  std::vector<PyObject*> items;
  if (!iterator) throw PythonError();
  while (Ref item = Ref::steal(next(iterator.get()))) items.push_back(item.get());
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) throw PythonError();
    PyErr_Clear();
  }
  return items;
}

struct FunctionParts {
  static constexpr size_t kCount = 5;
  PyObject* parts[kCount];
  explicit FunctionParts(PyObject* function)
      : parts{PyFunction_GET_CODE(function), PyFunction_GET_DEFAULTS(function),
              PyFunction_GET_KW_DEFAULTS(function), PyFunction_GET_CLOSURE(function),
              reinterpret_cast<PyFunctionObject*>(function)->func_dict} {}
};

}  // namespace

uint64_t dict_version(PyObject* dict) { return version_of(dict); }

// The builtin types' own iterators: a subclass may have others, written in Python.
std::vector<PyObject*> ordered_keys(PyObject* dict) {
  Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
  const iternextfunc next = iterator ? Py_TYPE(iterator.get())->tp_iternext : nullptr;
  return read_all(std::move(iterator), next);
}

std::vector<PyObject*> set_items(PyObject* set) {
  Ref iterator = Ref::steal(PySet_Type.tp_iter(set));
  const iternextfunc next = iterator ? Py_TYPE(iterator.get())->tp_iternext : nullptr;
  return read_all(std::move(iterator), next);
}

std::vector<PyObject*> items_of(PyObject* deque) {
  Ref iterator = Ref::steal(PyObject_GetIter(deque));
  const iternextfunc next = iterator ? Py_TYPE(iterator.get())->tp_iternext : nullptr;
  return read_all(std::move(iterator), next);
}

void Watch::add_dict(PyObject* dict) {
  count_changes(dict);
  dicts_.push_back({Ref::borrow(dict), version_of(dict)});
}

Watch::Item::Item(PyObject* object) : object_(object) {
  if (object && !THPVariable_Check(object)) keep_ = Ref::borrow(object);
}

void Watch::add_list(PyObject* list) {
  PyObject** items = reinterpret_cast<PyListObject*>(list)->ob_item;
  lists_.push_back({Ref::borrow(list), {items, items + PyList_GET_SIZE(list)}});
}

void Watch::add_deque(PyObject* deque, const std::vector<PyObject*>& items) {
  deques_.push_back({Ref::borrow(deque), {items.begin(), items.end()}});
}

void Watch::add_order(PyObject* dict, const std::vector<PyObject*>& keys) {
  orders_.push_back({Ref::borrow(dict), {keys.begin(), keys.end()}});
}

void Watch::add_object(PyObject* object, bool has_dict) {
  Ref dict;
  PyObject** slot = nullptr;
  if (has_dict) {
    dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) throw PythonError();
    slot = instance_dict_slot(object);
  }
  objects_.push_back({Ref::borrow(object), Py_TYPE(object), slot, std::move(dict)});
}

void Watch::add_weak_reference(PyObject* reference) {
  // Not the referent itself: watching must not keep it alive.
  weak_.push_back({Ref::borrow(reference), Item::unkept(PyWeakref_GET_OBJECT(reference))});
}

void Watch::add_set(PyObject* set) {
  const std::vector<PyObject*> items = set_items(set);
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
  functions_.push_back({Ref::borrow(function), {now.parts, now.parts + FunctionParts::kCount}});
}

void Watch::add_type(PyTypeObject* type) {
  if (!known_types_.insert(type).second) return;
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

bool Watch::dicts_unchanged() {
#if PY_VERSION_HEX >= 0x030c0000
  const uint64_t changes = num_dict_changes();
  if (changes == changes_seen_) return true;
#endif
  for (const Dict& watched : dicts_) {
    if (version_of(watched.dict.get()) != watched.version) return false;
  }
#if PY_VERSION_HEX >= 0x030c0000
  changes_seen_ = changes;
#endif
  return true;
}

bool Watch::unchanged() {
  if (!dicts_unchanged()) return false;
  for (const Object& watched : objects_) {
    if (Py_TYPE(watched.object.get()) != watched.type) return false;
    if (watched.slot && *watched.slot != watched.dict.get()) return false;
  }
  for (const Items& watched : orders_) {
    const std::vector<PyObject*> now = ordered_keys(watched.container.get());
    if (!same_items(watched.items, now.data(), now.size())) return false;
  }
  for (const Cell& watched : weak_) {
    if (!watched.value.is(PyWeakref_GET_OBJECT(watched.cell.get()))) return false;
  }
  for (const Items& watched : lists_) {
    PyObject* list = watched.container.get();
    if (!same_items(watched.items, reinterpret_cast<PyListObject*>(list)->ob_item,
                    static_cast<size_t>(PyList_GET_SIZE(list)))) {
      return false;
    }
  }
  for (const Items& watched : deques_) {
    const std::vector<PyObject*> now = items_of(watched.container.get());
    if (!same_items(watched.items, now.data(), now.size())) return false;
  }
  for (const Items& watched : sets_) {
    if (!same_set(watched.items, watched.container.get())) return false;
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
    if (!same_items(watched.parts, now.parts, FunctionParts::kCount)) return false;
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
  return dicts_.size() + orders_.size() + objects_.size() + weak_.size() + lists_.size() +
         deques_.size() + sets_.size() + slots_.size() + cells_.size() + functions_.size() +
         types_.size() + globals_.size();
}

int Watch::traverse(visitproc visit, void* arg) const {
  const auto visit_items = [&](const std::vector<Item>& items) {
    for (const Item& item : items) Py_VISIT(item.kept());
    return 0;
  };
  for (const Dict& watched : dicts_) Py_VISIT(watched.dict.get());
  for (const Object& watched : objects_) {
    Py_VISIT(watched.object.get());
    Py_VISIT(watched.dict.get());
  }
  for (const auto* group : {&orders_, &lists_, &deques_, &sets_}) {
    for (const Items& watched : *group) {
      Py_VISIT(watched.container.get());
      if (const int status = visit_items(watched.items)) return status;
    }
  }
  for (const auto* group : {&cells_, &weak_}) {
    for (const Cell& watched : *group) {
      Py_VISIT(watched.cell.get());
      Py_VISIT(watched.value.kept());
    }
  }
  for (const Slots& watched : slots_) {
    Py_VISIT(watched.object.get());
    if (const int status = visit_items(watched.values)) return status;
  }
  for (const Function& watched : functions_) {
    Py_VISIT(watched.function.get());
    if (const int status = visit_items(watched.parts)) return status;
  }
  for (const Type& watched : types_) Py_VISIT(watched.type.get());
  for (const Globals& watched : globals_) {
    Py_VISIT(watched.dict.get());
    for (const Global& global : watched.names) {
      Py_VISIT(global.name.get());
      Py_VISIT(global.value.kept());
    }
  }
  return 0;
}

}  // namespace trident::guards
