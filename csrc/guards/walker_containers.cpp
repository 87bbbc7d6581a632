// The walk's containers: sequences, dictionaries, sets, attributes.
#include <algorithm>

#include "guards/cpython_layout.h"
#include "guards/walker.h"
#include "guards/watch.h"
#include "guards/words.h"

namespace trident::guards {
namespace {

constexpr uint32_t kMaxDepth = 400;
constexpr size_t kMaxWords = size_t{1} << 22;

}  // namespace

bool Walker::visit_container(PyObject* object, const TypeInfo& info) {
  const auto [position, added] =
      walk_.container_positions.emplace(object, static_cast<uint32_t>(walk_.containers.size()));
  if (!added) {
    walk_.words.push_back(tagged(Tag::kReference, position));
    return true;
  }
  if (depth_ >= kMaxDepth) return fail("objects nested more than 400 deep");
  if (walk_.words.size() > kMaxWords)
    return fail("arguments or attributes with millions of entries");
  const auto own = static_cast<uint32_t>(walk_.containers.size());
  walk_.containers.push_back(object);
  ++depth_;
  place_ = {};
  bool ok = true;
  switch (info.shape) {
    case Shape::kTuple:
      walk_.words.push_back(tagged(Tag::kTuple, static_cast<uint64_t>(PyTuple_GET_SIZE(object))));
      for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(object); ++i) {
        place_ = {true, own, nullptr, static_cast<uint32_t>(i), false};
        ok = visit(PyTuple_GET_ITEM(object, i));
      }
      place_ = {};
      break;
    case Shape::kList:
      if (closed_ && closed_->count(object)) {
        walk_.words.push_back(tagged(Tag::kClosedList));
        walk_.closed.push_back(own);
        break;
      }
      if (watch_) watch_->add_list(object);
      walk_.words.push_back(tagged(Tag::kList, static_cast<uint64_t>(PyList_GET_SIZE(object))));
      for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(object); ++i) {
        place_ = {true, own, nullptr, static_cast<uint32_t>(i), false};
        ok = visit(PyList_GET_ITEM(object, i));
      }
      place_ = {};
      break;
    case Shape::kDeque:
      ok = visit_deque(object, own);
      break;
    case Shape::kDict:
      ok = visit_dict(object, {true, own, nullptr, 0, false});
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
      if (referent == Py_None || walk_.container_positions.find(referent) != PointerMap::kAbsent ||
          walk_.tensor_positions.find(referent) != PointerMap::kAbsent) {
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
  place_ = {};
  if (ok && PyODict_CheckExact(object)) {
    PyObject** attributes = _PyObject_GetDictPtr(object);
    if (attributes && *attributes && PyDict_GET_SIZE(*attributes)) {
      ok = fail("an OrderedDict with attributes of its own");
    }
  }
  --depth_;
  return ok;
}

bool Walker::visit_dict(PyObject* dict, Place place) {
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
    place_ = place;
    place_.key = key;
    if (!visit(value)) return false;
    place_ = {};
  }
  return PyDict_GET_SIZE(dict) < 2 || !PyODict_Check(dict) || visit_order(dict);
}

bool Walker::visit_order(PyObject* dict) {
  // move_to_end() changes the order of an ordered dictionary, and neither the dictionary's version
  // nor the order in which PyDict_Next finds the entries.
  const std::vector<PyObject*> keys = ordered_keys(dict);
  if (watch_) watch_->add_order(dict, keys);
  PointerMap positions;
  PyObject* key;
  Py_ssize_t position = 0;
  uint32_t count = 0;
  while (PyDict_Next(dict, &position, &key, nullptr)) positions.emplace(key, count++);
  bool moved = false;
  for (size_t i = 0; i < keys.size(); ++i) moved = moved || positions.find(keys[i]) != i;
  if (!moved) return true;
  walk_.words.push_back(tagged(Tag::kOrder, keys.size()));
  for (PyObject* each : keys) walk_.words.push_back(positions.find(each));
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

bool Walker::visit_deque(PyObject* deque, uint32_t own) {
  const std::vector<PyObject*> items = items_of(deque);
  if (watch_) watch_->add_deque(deque, items);
  // A member of C, which never changes.
  const Ref limit = Ref::steal(PyObject_GetAttrString(deque, "maxlen"));
  if (!limit) throw PythonError();
  const Py_ssize_t longest = limit.get() == Py_None ? -1 : PyLong_AsSsize_t(limit.get());
  walk_.words.push_back(tagged(Tag::kDeque, items.size()));
  walk_.words.push_back(static_cast<uint64_t>(longest));
  for (size_t i = 0; i < items.size(); ++i) {
    place_ = {true, own, nullptr, static_cast<uint32_t>(i), false};
    if (!visit(items[i])) return false;
  }
  place_ = {};
  return true;
}

bool Walker::visit_attributes(PyObject* object, const TypeInfo& info) {
  if (watch_) watch_->add_object(object, info.has_dict);
  const uint32_t owner = walk_.container_positions.find(object);
  const bool named = owner != PointerMap::kAbsent;
  const Place place{named, named ? owner : 0, nullptr, 0, true};
  if (!info.slots.empty()) {
    if (watch_) watch_->add_slots(object, info);
    walk_.words.push_back(tagged(Tag::kSlots, info.slots.size()));
    for (size_t i = 0; i < info.slots.size(); ++i) {
      PyObject* value =
          *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + info.slots[i]);
      place_ = place;
      place_.key = info.slot_keys[i].get();
      place_.known = place.known && place_.key;
      if (!value) {
        walk_.words.push_back(tagged(Tag::kMissing));
      } else if (!visit(value)) {
        return false;
      }
    }
    place_ = {};
  }
  if (!info.has_dict) return true;
  const Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) throw PythonError();
  return visit_dict(dict.get(), place);
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

}  // namespace trident::guards
