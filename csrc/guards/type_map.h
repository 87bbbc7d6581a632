// What is remembered per Python type, for as long as the type lives.
//
// Classes come and go (every optimized object has one of its own), so a cache that held them would
// leak them and all that they reach; one that only knew their addresses could meet another class at
// the same place. Entries are dropped by a weak reference's callback.
#pragma once

#include <memory>
#include <unordered_map>

#include "guards/python.h"

namespace trident::guards {

class TypeMapBase {
 public:
  TypeMapBase();
  virtual ~TypeMapBase() = default;
  TypeMapBase(const TypeMapBase&) = delete;
  TypeMapBase& operator=(const TypeMapBase&) = delete;
  virtual void forget(PyTypeObject* type) = 0;
  // Forgets what all maps hold of a type, for what is known of it to be found anew.
  static void forget_in_all(PyTypeObject* type);

 protected:
  // A weak reference to `type` whose callback forgets it in every map; empty for static types.
  static Ref watch_life(PyTypeObject* type);
};

template <typename Value>
class TypeMap final : public TypeMapBase {
 public:
  Value* find(PyTypeObject* type) {
    if (type == last_type_) return last_value_;
    const auto found = entries_.find(type);
    if (found == entries_.end()) return nullptr;
    last_type_ = type;
    last_value_ = found->second.value.get();
    return last_value_;
  }
  Value& add(PyTypeObject* type, Value value) {
    Entry entry{watch_life(type), std::make_unique<Value>(std::move(value))};
    last_type_ = nullptr;
    return *entries_.insert_or_assign(type, std::move(entry)).first->second.value;
  }
  void forget(PyTypeObject* type) override {
    if (type == last_type_) last_type_ = nullptr;
    const auto found = entries_.find(type);
    if (found == entries_.end()) return;
    // What the entry holds is released last: that may run code which comes back here.
    const Entry gone = std::move(found->second);
    entries_.erase(found);
  }

 private:
  struct Entry {
    Ref life;
    std::unique_ptr<Value> value;
  };
  std::unordered_map<PyTypeObject*, Entry> entries_;
  PyTypeObject* last_type_ = nullptr;
  Value* last_value_ = nullptr;
};

}  // namespace trident::guards
