#include "guards/state.h"

#include <torch/csrc/autograd/python_variable.h>

#include "guards/class_info.h"
#include "guards/cpython_layout.h"
#include "guards/library.h"
#include "guards/tensor_facts.h"
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

bool State::current() {
  if (!valid_ || !watch_.unchanged()) return false;
  // Geometry changes in place (`.data = `, `resize_`, `requires_grad_`) leave no trace in any
  // dictionary, so every tensor is looked at.
  for (size_t i = 0; i < walk_.tensors.size(); ++i) {
    if (!tensor_matches(*THPVariable_Unpack(walk_.tensors[i]).unsafeGetTensorImpl(),
                        walk_.words.data() + walk_.tensor_words[i]) ||
        tensor_attributes(walk_.tensors[i]) != attributes_[i]) {
      return false;
    }
  }
  return true;
}

bool State::refresh() {
  if (current()) return true;
  valid_ = false;
  // Describing an object for the first time can run Python code (and so other threads), hence
  // nothing shared is written before the walk is complete.
  Walk walk;
  Watch watch;
  Walker walker(walk, &watch);
  for (const Ref& root : roots_) {
    if (!walker.visit(root.get())) break;
  }
  walk_ = std::move(walk);
  watch_ = std::move(watch);
  positions_.clear();
  container_positions_.clear();
  attributes_.clear();
  for (size_t i = 0; i < walk_.tensors.size(); ++i) {
    positions_.emplace(walk_.tensors[i], i);
    attributes_.push_back(tensor_attributes(walk_.tensors[i]));
  }
  for (size_t i = 0; i < walk_.containers.size(); ++i) {
    container_positions_.emplace(walk_.containers[i], i);
  }
  if (!walk_.unsupported.empty()) return false;
  id_ = intern();
  valid_ = true;
  return true;
}

uint64_t State::intern() {
  const uint64_t hash = scm::hash_words(walk_.words);
  for (const Known& known : ids_[hash]) {
    if (*known.words == walk_.words) return known.id;
  }
  // A model that never returns to an old state must not grow this table without end. Forgetting
  // costs a recompilation at worst, since ids are never given out twice.
  if (num_known_ >= kMaxKnownStates) {
    ids_.clear();
    num_known_ = 0;
  }
  ++num_known_;
  Known known{std::make_shared<const std::vector<uint64_t>>(walk_.words), {}, next_id_++};
  for (PyObject* identity : walk_.identities) known.identities.push_back(Ref::borrow(identity));
  const uint64_t id = known.id;
  ids_[hash].push_back(std::move(known));
  return id;
}

std::shared_ptr<const std::vector<uint64_t>> State::words_of(uint64_t id) const {
  for (const auto& [hash, states] : ids_) {
    for (const Known& known : states) {
      if (known.id == id) return known.words;
    }
  }
  return nullptr;
}

std::vector<PyObject*> State::identities_of(const std::vector<uint64_t>* words) const {
  std::vector<PyObject*> found;
  for (const auto& [hash, states] : ids_) {
    for (const Known& known : states) {
      if (known.words.get() != words) continue;
      for (const Ref& identity : known.identities) found.push_back(identity.get());
    }
  }
  return found;
}

void State::clear() {
  valid_ = false;
  walk_.clear();
  watch_.clear();
  positions_.clear();
  container_positions_.clear();
  attributes_.clear();
  ids_.clear();
  num_known_ = 0;
  roots_.clear();
}

int State::traverse(visitproc visit, void* arg) const {
  for (const Ref& root : roots_) Py_VISIT(root.get());
  for (const auto& [hash, states] : ids_) {
    for (const Known& known : states) {
      for (const Ref& identity : known.identities) Py_VISIT(identity.get());
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
  tensors_ = std::move(walk.tensors);
  tensor_words_ = std::move(walk.tensor_words);
  return {};
}

bool Reads::unchanged() {
  for (const auto& [dict, limit] : limits_) {
    if (PyDict_GET_SIZE(dict.get()) >= limit) return false;
  }
  if (watch_.unchanged()) {
    bool same = true;
    for (size_t i = 0; same && i < tensors_.size(); ++i) {
      same = tensor_matches(*THPVariable_Unpack(tensors_[i]).unsafeGetTensorImpl(),
                            words_.data() + tensor_words_[i]);
    }
    if (same) return true;
  }
  Walk walk;
  Watch watch;
  std::vector<size_t> starts;
  if (!describe(walk, watch, starts) || walk.words != words_) return false;
  watch_ = std::move(watch);
  tensors_ = std::move(walk.tensors);
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
