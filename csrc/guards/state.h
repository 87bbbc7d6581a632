// The Python state that a specialization depends on: everything reachable from the optimized callable.
//
// A walk of the whole state costs microseconds per module, so it is repeated only when a watch says
// that something changed. Its words are interned: a state that was seen before has the id it had then.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "guards/tensor_watch.h"
#include "guards/walker.h"
#include "guards/watch.h"

namespace trident::guards {

class State {
 public:
  void add_root(PyObject* root);

  // Brings the walk up to date. False if the state cannot be described (see unsupported()).
  bool refresh();

  // Leaves the contents of a list out of the state from now on, or takes them in again. Code that is
  // compiled while they are left out must not read them.
  void close_list(PyObject* list, bool closed);

  // A number for the present words; another one where they were not interned.
  uint64_t id() const { return id_; }

  // An id, and the words of the first walk that it was given to.
  struct Interned {
    uint64_t id;
    std::shared_ptr<const std::vector<uint64_t>> words;
  };
  // The id of a walk of this state, from now on.
  Interned intern(const Walk& walk);

  // The same of all its words but those at `positions`, ascending, which are left open.
  Interned intern_open(const Walk& walk, const std::vector<uint32_t>& positions);

  // What the present state is where some words are left open: an id from intern_open, and the
  // present values of the open words.
  struct Opened {
    uint64_t id;
    std::vector<uint64_t> values;
  };
  const std::vector<Opened>& opened();

  const Walk& walk() const { return walk_; }
  // While it stays the same, so do the walk's tensors and where their elements lie; never 0.
  uint64_t version() const { return tensors_.version(); }
  const std::string& unsupported() const { return walk_.unsupported; }
  void clear();
  ~State() { release_closed(); }

  // The objects whose addresses stand in words that were interned, borrowed; none where these have
  // been forgotten.
  std::vector<PyObject*> identities_of(const std::vector<uint64_t>* words) const;

  // Shows the garbage collector every reference held.
  int traverse(visitproc visit, void* arg) const;

 private:
  bool current();
  void forget_if_many();
  void release_closed();

  std::vector<Ref> roots_;
  std::unordered_set<PyObject*> closed_;  // owned
  Walk walk_;
  Watch watch_;
  TensorWatch tensors_;
  bool valid_ = false;      // the walk is up to date, but for what the watches say
  bool described_ = false;  // there is a walk, and `id_` is its number
  uint64_t id_ = 0;
  // Interned walks by hash; identities are kept alive so that their addresses stay theirs.
  struct Known {
    std::shared_ptr<const std::vector<uint64_t>> key;  // the words, with 0 for what is left open
    std::shared_ptr<const std::vector<uint64_t>> words;
    std::vector<Ref> identities;
    uint64_t id;
  };
  using Ids = std::unordered_map<uint64_t, std::vector<Known>>;
  static const Known* find(const Ids& ids, const std::vector<uint64_t>& words);
  Interned add(Ids& ids, std::vector<uint64_t> key, const Walk& walk, uint64_t id);

  // Walks of one length that are known but for the words at these positions.
  struct OpenIds {
    size_t size;
    std::vector<uint32_t> positions;
    Ids ids;
  };

  Ids ids_;
  std::vector<OpenIds> open_ids_;
  std::vector<Opened> opened_;
  bool opened_current_ = false;
  uint64_t next_id_ = 0;
  size_t num_known_ = 0;
};

// What recorded code read besides its arguments and attributes: names in its globals, closure cells,
// functions that ran, and classes. Per specialization. Scalars, strings and tuples of them are compared
// by value; of other objects a deep read compares everything reachable, a shallow one the identity.
class Reads {
 public:
  // A deep read in a library's globals is lenient: what cannot be described is compared by identity.
  void add_global(PyObject* globals, PyObject* name, bool deep);
  // A closure cell; or a function: its code, defaults and attributes.
  void add_cell(PyObject* cell, bool deep);
  void add_type(PyTypeObject* type);
  // A dictionary that must stay smaller than `limit`: what it holds at that size may be used anew.
  void add_limit(PyObject* dict, Py_ssize_t limit);
  // Whether the thread is in a region of autocast.
  void add_autocast_region(bool inside) { autocast_region_ = inside; }
  // Records the present values. Returns why one cannot be described, or an empty string.
  std::string record();
  bool unchanged();
  int traverse(visitproc visit, void* arg) const;

  // What was recorded, for reports: the words of all reads, where those of each begin (reads in the
  // order in which they were added, then types), and the objects that the words name.
  struct Description {
    std::vector<uint64_t> words;
    std::vector<size_t> starts;
    std::vector<Ref> identities;
  };
  Description recorded() const { return {words_, starts_, identities_}; }
  // The same of the present values. Nothing where one cannot be described.
  std::optional<Description> present() const;

 private:
  bool describe(Walk& walk, Watch& watch, std::vector<size_t>& starts) const;

  struct Read {
    Ref source;  // globals dictionary, cell or function
    Ref name;    // absent for cells and functions
    bool deep;
    bool lenient;
  };
  std::vector<Read> reads_;
  std::vector<Ref> types_;
  std::vector<std::pair<Ref, Py_ssize_t>> limits_;
  std::optional<bool> autocast_region_;
  Watch watch_;
  std::vector<uint64_t> words_;
  std::vector<size_t> starts_;
  std::vector<Ref> identities_;
  TensorWatch tensors_;  // met in deep reads
};

}  // namespace trident::guards
