// Tells cheaply whether anything that a walk read has changed since.
//
// Dictionaries are compared by their version tag (CPython 3.11 and 3.12 give every modification a
// new one), on 3.12 only where a dictionary watcher has seen any change; lists, sets, slots, cells and functions by the identity of what they hold, types by
// their version tag. Immutable objects need no watch. Holds strong references to what it watches.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "guards/python.h"
#include "guards/type_info.h"

namespace trident::guards {

class Watch {
 public:
  void add_dict(PyObject* dict);
  // An ordered dictionary's keys in their order, which its version tag does not cover.
  void add_order(PyObject* dict, const std::vector<PyObject*>& keys);
  // An instance whose class, and whose dictionary as a whole, can be exchanged.
  void add_object(PyObject* object, bool has_dict);
  void add_weak_reference(PyObject* reference);
  void add_list(PyObject* list);
  void add_deque(PyObject* deque, const std::vector<PyObject*>& items);
  void add_set(PyObject* set);
  void add_slots(PyObject* object, const TypeInfo& info);
  void add_cell(PyObject* cell);
  void add_function(PyObject* function);
  void add_type(PyTypeObject* type);
  // One name of a module's globals; other names may change freely.
  void add_global(PyObject* globals, PyObject* name);

  bool unchanged();
  void clear();
  int traverse(visitproc visit, void* arg) const;
  size_t size() const;

 private:
  bool dicts_unchanged();
  bool types_unchanged() const;

  static constexpr uint64_t kNotLooked = static_cast<uint64_t>(-1);

  // What a container held. Tensors are not kept alive: a tensor at the same address in the same
  // place is the tensor to use, and its geometry is compared at every call.
  class Item {
   public:
    explicit Item(PyObject* object);
    static Item unkept(PyObject* object) {
      Item item(nullptr);
      item.object_ = object;
      return item;
    }
    bool is(PyObject* object) const { return object == object_; }
    PyObject* kept() const { return keep_.get(); }

   private:
    PyObject* object_;
    Ref keep_;
  };
  struct Dict {
    Ref dict;
    uint64_t version;
  };
  struct Items {
    Ref container;
    std::vector<Item> items;
  };
  struct Slots {
    Ref object;
    std::vector<Py_ssize_t> offsets;
    std::vector<Item> values;
  };
  struct Cell {
    Ref cell;
    Item value;
  };
  struct Function {
    Ref function;
    std::vector<Item> parts;  // code, defaults, keyword defaults, closure, attributes
  };
  struct Object {
    Ref object;
    PyTypeObject* type;  // kept alive by the walk's types
    PyObject** slot;     // nullptr: no dictionary
    Ref dict;
  };
  struct Type {
    Ref type;
    unsigned int version;
  };
  struct Global {
    Ref name;
    Item value;
  };
  struct Globals {
    Ref dict;
    uint64_t version;
    std::vector<Global> names;
  };

  std::vector<Dict> dicts_;
  uint64_t changes_seen_ = kNotLooked;  // the count when all dictionaries were last compared
  std::vector<Items> orders_;
  std::vector<Object> objects_;
  std::vector<Cell> weak_;
  std::vector<Items> lists_;
  std::vector<Items> deques_;
  std::vector<Items> sets_;
  std::vector<Slots> slots_;
  std::vector<Cell> cells_;
  std::vector<Function> functions_;
  std::vector<Type> types_;
  std::unordered_set<PyTypeObject*> known_types_;
  std::vector<Globals> globals_;
};

uint64_t dict_version(PyObject* dict);

// Keys of an ordered dictionary in its own order, and elements of a set; borrowed.
std::vector<PyObject*> ordered_keys(PyObject* dict);
std::vector<PyObject*> set_items(PyObject* set);
std::vector<PyObject*> items_of(PyObject* deque);

}  // namespace trident::guards
