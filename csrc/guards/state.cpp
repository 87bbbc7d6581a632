#include "guards/state.h"

#include <algorithm>
#include <utility>

#include "guards/class_info.h"
#include "guards/environment.h"
#include "guards/library.h"
#include "guards/words.h"
#include "scm/hash.h"

namespace trident::guards {
namespace {
constexpr size_t kMaxKnownStates = 256;
}

void State::add_root(PyObject* root) {
  roots_.push_back(Ref::borrow(root));
  valid_ = false;
}

bool State::current() { return valid_ && watch_.unchanged() && tensors_.unchanged(walk_.words); }

bool State::refresh() {
  if (current()) return true;
  valid_ = false;
  // Describing an object for the first time can run Python code (and so other threads), hence
  // nothing shared is written before the walk is complete.
  Walk walk;
  Watch watch;
  Walker walker(walk, &watch);
  walker.record_scalars();
  walker.leave_out(closed_);
  for (const Ref& root : roots_) {
    if (!walker.visit(root.get())) break;
  }
  const bool same = described_ && walk.words == walk_.words;
  walk_ = std::move(walk);
  watch_ = std::move(watch);
  described_ = walk_.unsupported.empty();
  if (!described_) return false;
  tensors_.record(walk_);
  valid_ = true;
  if (same) return true;
  const Known* const known = find(ids_, walk_.words);
  id_ = known ? known->id : next_id_++;
  opened_current_ = false;
  return true;
}

const State::Known* State::find(const Ids& ids, const std::vector<uint64_t>& words) {
  const auto bucket = ids.find(scm::hash_words(words));
  if (bucket == ids.end()) return nullptr;
  for (const Known& known : bucket->second) {
    if (*known.key == words) return &known;
  }
  return nullptr;
}

State::Interned State::add(Ids& ids, std::vector<uint64_t> key, const Walk& walk, uint64_t id) {
  const auto words = std::make_shared<const std::vector<uint64_t>>(walk.words);
  const bool whole = key == *words;
  Known known{
      whole ? words : std::make_shared<const std::vector<uint64_t>>(std::move(key)), words, {}, id};
  for (PyObject* identity : walk.identities) known.identities.push_back(Ref::borrow(identity));
  Interned added{id, known.words};
  ids[scm::hash_words(*known.key)].push_back(std::move(known));
  ++num_known_;
  return added;
}

void State::forget_if_many() {
  // A model that never returns to an old state must not grow this table without end. Forgetting
  // costs a recompilation at worst, since ids are never given out twice.
  if (num_known_ < kMaxKnownStates) return;
  ids_.clear();
  open_ids_.clear();
  opened_current_ = false;
  num_known_ = 0;
}

State::Interned State::intern(const Walk& walk) {
  if (const Known* known = find(ids_, walk.words)) return {known->id, known->words};
  forget_if_many();
  const bool present = described_ && walk.words == walk_.words;
  return add(ids_, walk.words, walk, present ? id_ : next_id_++);
}

namespace {

std::vector<uint64_t> without(const std::vector<uint64_t>& words,
                              const std::vector<uint32_t>& positions) {
  std::vector<uint64_t> kept = words;
  for (const uint32_t position : positions) kept[position] = 0;
  return kept;
}

}  // namespace

State::Interned State::intern_open(const Walk& walk, const std::vector<uint32_t>& positions) {
  forget_if_many();
  const auto same = [&](const OpenIds& open) {
    return open.size == walk.words.size() && open.positions == positions;
  };
  auto open = std::find_if(open_ids_.begin(), open_ids_.end(), same);
  if (open == open_ids_.end()) {
    open_ids_.push_back({walk.words.size(), positions, {}});
    open = open_ids_.end() - 1;
  }
  opened_current_ = false;
  std::vector<uint64_t> kept = without(walk.words, positions);
  if (const Known* known = find(open->ids, kept)) return {known->id, known->words};
  return add(open->ids, std::move(kept), walk, next_id_++);
}

const std::vector<State::Opened>& State::opened() {
  if (opened_current_) return opened_;
  opened_.clear();
  for (const OpenIds& open : open_ids_) {
    if (open.size != walk_.words.size()) continue;
    const Known* const known = find(open.ids, without(walk_.words, open.positions));
    if (!known) continue;
    Opened opened{known->id, {}};
    for (const uint32_t position : open.positions) {
      opened.values.push_back(walk_.words[position]);
    }
    opened_.push_back(std::move(opened));
  }
  opened_current_ = true;
  return opened_;
}

std::vector<PyObject*> State::identities_of(const std::vector<uint64_t>* words) const {
  std::vector<const Ids*> all = {&ids_};
  for (const OpenIds& open : open_ids_) all.push_back(&open.ids);
  std::vector<PyObject*> found;
  for (const Ids* ids : all) {
    for (const auto& [hash, states] : *ids) {
      for (const Known& known : states) {
        if (known.words.get() != words) continue;
        for (const Ref& identity : known.identities) found.push_back(identity.get());
      }
    }
  }
  return found;
}

void State::close_list(PyObject* list, bool closed) {
  if (closed && closed_.insert(list).second) Py_INCREF(list);
  if (!closed && closed_.erase(list)) Py_DECREF(list);
  valid_ = false;
}

void State::release_closed() {
  for (PyObject* list : std::exchange(closed_, {})) Py_DECREF(list);
}

void State::clear() {
  release_closed();
  valid_ = false;
  described_ = false;
  walk_.clear();
  watch_.clear();
  tensors_.clear();
  ids_.clear();
  open_ids_.clear();
  opened_.clear();
  num_known_ = 0;
  roots_.clear();
}

int State::traverse(visitproc visit, void* arg) const {
  for (const Ref& root : roots_) Py_VISIT(root.get());
  for (PyObject* list : closed_) Py_VISIT(list);
  std::vector<const Ids*> all = {&ids_};
  for (const OpenIds& open : open_ids_) all.push_back(&open.ids);
  for (const Ids* ids : all) {
    for (const auto& [hash, states] : *ids) {
      for (const Known& known : states) {
        for (const Ref& identity : known.identities) Py_VISIT(identity.get());
      }
    }
  }
  return watch_.traverse(visit, arg);
}

namespace {

bool is_value(PyObject* object) {
  if (object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
      PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) ||
      PyComplex_CheckExact(object)) {
    return true;
  }
  if (!PyTuple_CheckExact(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    if (!is_value(PyTuple_GET_ITEM(object, i))) return false;
  }
  return true;
}

}  // namespace

void Reads::add_global(PyObject* globals, PyObject* name, bool deep) {
  reads_.push_back({Ref::borrow(globals), Ref::borrow(name), deep, is_library(globals)});
}

void Reads::add_cell(PyObject* cell, bool deep) {
  reads_.push_back({Ref::borrow(cell), Ref(), deep, false});
}

void Reads::add_type(PyTypeObject* type) {
  types_.push_back(Ref::borrow(reinterpret_cast<PyObject*>(type)));
}

void Reads::add_limit(PyObject* dict, Py_ssize_t limit) {
  limits_.emplace_back(Ref::borrow(dict), limit);
}

bool Reads::describe(Walk& walk, Watch& watch, std::vector<size_t>& starts) const {
  Walker walker(walk, &watch);
  for (const Read& read : reads_) {
    starts.push_back(walk.words.size());
    PyObject* source = read.source.get();
    PyObject* value = nullptr;
    walker.set_lenient(read.lenient);
    if (read.name) {
      watch.add_global(source, read.name.get());
      value = PyDict_GetItemWithError(source, read.name.get());
      if (!value && PyErr_Occurred()) throw PythonError();
    } else if (PyFunction_Check(source)) {
      if (!walker.visit_function_parts(source)) return false;
      continue;
    } else {
      watch.add_cell(source);
      value = PyCell_GET(source);
    }
    if (!value) {
      walk.words.push_back(tagged(Tag::kMissing));
    } else if (read.deep || is_value(value)) {
      if (!walker.visit(value)) return false;
    } else {
      walk.words.push_back(tagged(Tag::kIdentity));
      walk.words.push_back(reinterpret_cast<uint64_t>(value));
      walk.identities.push_back(value);
    }
  }
  walker.set_lenient(false);
  for (const Ref& type : types_) {
    starts.push_back(walk.words.size());
    if (!walker.visit_class(reinterpret_cast<PyTypeObject*>(type.get()))) return false;
  }
  return true;
}

std::string Reads::record() {
  Walk walk;
  watch_.clear();
  starts_.clear();
  if (!describe(walk, watch_, starts_)) return walk.unsupported;
  words_ = std::move(walk.words);
  for (PyObject* identity : walk.identities) identities_.push_back(Ref::borrow(identity));
  tensors_.record(walk);
  return {};
}

bool Reads::unchanged() {
  if (autocast_region_ && *autocast_region_ != in_autocast_region()) return false;
  for (const auto& [dict, limit] : limits_) {
    if (PyDict_GET_SIZE(dict.get()) >= limit) return false;
  }
  if (watch_.unchanged() && tensors_.unchanged(words_)) return true;
  Walk walk;
  Watch watch;
  std::vector<size_t> starts;
  if (!describe(walk, watch, starts) || walk.words != words_) return false;
  watch_ = std::move(watch);
  tensors_.record(walk);
  return true;
}

std::optional<Reads::Description> Reads::present() const {
  Walk walk;
  Watch watch;
  Description now;
  if (!describe(walk, watch, now.starts)) return std::nullopt;
  now.words = std::move(walk.words);
  for (PyObject* identity : walk.identities) now.identities.push_back(Ref::borrow(identity));
  return now;
}

int Reads::traverse(visitproc visit, void* arg) const {
  for (const Read& read : reads_) {
    Py_VISIT(read.source.get());
    Py_VISIT(read.name.get());
  }
  for (const auto& limited : limits_) Py_VISIT(limited.first.get());
  for (const auto* references : {&types_, &identities_}) {
    for (const Ref& reference : *references) Py_VISIT(reference.get());
  }
  return watch_.traverse(visit, arg);
}

}  // namespace trident::guards
