// The Python state that a specialization depends on: everything reachable from the optimized callable.
//
// A walk of the whole state costs microseconds per module, so it is repeated only when a watch says
// that something changed. Its words are interned: a state that was seen before has the id it had then.
#pragma once

#include <memory>
#include <unordered_map>

#include "guards/walker.h"
#include "guards/watch.h"

namespace trident::guards {

class State {
 public:
  void add_root(PyObject* root);

  // Brings the walk up to date. False if the state cannot be described (see unsupported()).
  bool refresh();

  uint64_t id() const { return id_; }
  const Walk& walk() const { return walk_; }
  const std::string& unsupported() const { return walk_.unsupported; }
  const std::vector<Ref>& roots() const { return roots_; }
  void clear();

  static constexpr size_t kNotState = static_cast<size_t>(-1);
  // The position of a tensor object among the state's tensors.
  size_t position_of(PyObject* tensor) const {
    const auto found = positions_.find(tensor);
    return found == positions_.end() ? kNotState : found->second;
  }

 private:
  bool current();
  uint64_t intern();

  std::vector<Ref> roots_;
  Walk walk_;
  Watch watch_;
  std::unordered_map<PyObject*, size_t> positions_;
  bool valid_ = false;
  uint64_t id_ = 0;
  // Interned walks by hash; identities are kept alive so that their addresses stay theirs.
  struct Known {
    std::vector<uint64_t> words;
    std::vector<Ref> identities;
    uint64_t id;
  };
  std::unordered_map<uint64_t, std::vector<Known>> ids_;
  uint64_t next_id_ = 0;
  size_t num_known_ = 0;
};

// Names that recorded code read from its globals, its closure cells, and classes it used: per
// specialization. Scalars, strings and tuples of them are compared by value; of other objects a
// deep read compares everything reachable, a shallow one the identity.
class Reads {
 public:
  void add_global(PyObject* globals, PyObject* name, bool deep);
  void add_cell(PyObject* cell, bool deep);
  void add_type(PyTypeObject* type);
  // Records the present values. Returns why one cannot be described, or an empty string.
  std::string record();
  bool unchanged();

 private:
  bool describe(Walk& walk, Watch& watch) const;

  struct Read {
    Ref source;  // globals dictionary or cell
    Ref name;    // absent for a cell
    bool deep;
  };
  std::vector<Read> reads_;
  std::vector<Ref> types_;
  Watch watch_;
  std::vector<uint64_t> words_;
  std::vector<Ref> identities_;
};

}  // namespace trident::guards
