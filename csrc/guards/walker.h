// Reads Python objects into facts, without running Python code.
//
// The walker visits everything that the given roots can reach and appends words that determine it.
// Equal words mean: the same structure, types, scalar values and tensor geometry, and the very same
// objects at the leaves that are guarded by identity. Tensors and containers are listed in the order
// they were met, so that position n of two walks with equal words plays the same role in both.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "guards/pointer_map.h"
#include "guards/python.h"
#include "guards/type_info.h"

namespace trident::guards {

class Watch;

// An int or float in a container that was walked: one of the words that may vary between calls.
struct Scalar {
  uint32_t word;       // position of its value
  uint32_t container;  // among the walk's
  PyObject* key;       // of a dictionary, or an attribute's name; nullptr in a sequence
  uint32_t index;      // in a sequence
  bool attribute;
};

// What one walk found. All references are borrowed from the objects walked.
struct Walk {
  std::vector<uint64_t> words;
  std::vector<PyObject*> tensors;
  std::vector<uint32_t> tensor_words;  // where each tensor's words begin
  std::vector<PyObject*> containers;
  std::vector<PyObject*> identities;
  std::vector<Scalar> scalars;     // where asked for
  std::vector<uint32_t> closed;    // containers that are lists whose contents were left out
  PointerMap tensor_positions;     // by object, in `tensors`
  PointerMap container_positions;  // by object, in `containers`
  std::string unsupported;         // empty, or why these objects cannot be described

  void clear();
};

class Walker {
 public:
  // `watch`, where given, records what must stay unchanged for the words to stay valid.
  explicit Walker(Walk& walk, Watch* watch = nullptr) : walk_(walk), watch_(watch) {}

  // Leaves the contents of these lists out.
  void leave_out(const std::unordered_set<PyObject*>& lists) { closed_ = &lists; }

  // Lists the ints and floats that containers hold.
  void record_scalars() { scalars_recorded_ = true; }

  // Guards functions by identity alone: for code whose own reads are recorded one by one.
  void keep_functions_closed() { functions_closed_ = true; }

  // Appends the facts of `object`. False if it cannot be described (walk.unsupported says why).
  bool visit(PyObject* object);

  // The facts of a class: whether it was patched, and what its attributes hold.
  bool visit_class(PyTypeObject* type);

  // What calls of this function depend on besides its arguments, globals and closure.
  bool visit_function_parts(PyObject* function);

  // While lenient, an object that cannot be described is guarded by identity.
  void set_lenient(bool lenient) { lenient_ = lenient; }

 private:
  // Where an object was found, if that was in a container whose items are named.
  struct Place {
    bool known = false;
    uint32_t container = 0;
    PyObject* key = nullptr;
    uint32_t index = 0;
    bool attribute = false;
  };

  bool visit_slow(PyObject* object);
  bool visit_tensor(PyObject* object);
  bool visit_int(PyObject* object);
  bool visit_container(PyObject* object, const TypeInfo& info);
  bool visit_dict(PyObject* dict) { return visit_dict(dict, Place()); }
  bool visit_dict(PyObject* dict, Place place);
  bool visit_order(PyObject* dict);
  bool visit_class_state(PyTypeObject* type);
  bool visit_tensor_attributes(PyObject* tensor);
  bool visit_builtin(PyObject* function);
  bool visit_deque(PyObject* deque, uint32_t own);
  bool visit_set(PyObject* set);
  bool visit_attributes(PyObject* object, const TypeInfo& info);
  bool visit_function(PyObject* function);
  bool visit_members(PyObject* object, const char* const* names);
  void note_scalar(PyObject* object);
  void append_string(PyObject* string);
  void append_numpy_scalar(PyObject* object);
  void append_identity(PyObject* object);
  bool fail(std::string reason);

  Walk& walk_;
  Watch* watch_;
  std::unordered_set<PyTypeObject*> met_classes_;
  uint32_t depth_ = 0;
  bool lenient_ = false;
  bool functions_closed_ = false;
  bool scalars_recorded_ = false;
  const std::unordered_set<PyObject*>* closed_ = nullptr;
  Place place_;  // of the object that is visited next
};

// The globals that `function` and the functions nested in it name and that hold state: containers,
// modules, tensors and functions of user code. Library functions have none. (key, value) pairs.
std::vector<std::pair<PyObject*, PyObject*>> stateful_globals(PyObject* function);

}  // namespace trident::guards
