// How a call's result, and the effects of its Python code, are rebuilt from tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "abi/profiled.h"
#include "guards/python.h"

namespace trident::python {

// What a specialization rebuilds objects from: those of the call's tensors and containers that the
// template uses, in the order of its `tensors_used` and `containers_used`, the host program's
// outputs and its numbers.
struct Sources {
  const std::vector<guards::Ref>& tensors;
  const std::vector<guards::Ref>& containers;
  const std::vector<c10::intrusive_ptr<c10::TensorImpl>>& outputs;
  const std::vector<int64_t>& numbers;
};

// A tree of objects to build, as a list of nodes in which children come before parents. A node that
// two parents name is one object, built once per call.
class Template {
 public:
  enum class Kind {
    kOutput,
    kTensor,
    kContainer,
    kConstant,
    kTuple,
    kList,
    kDict,
    kObject,
    kInteger,
    kDouble
  };

  // `nodes`: list of tuples (kind, payload, children, attributes); see trident/capture/template.py.
  static Template parse(PyObject* nodes);

  // Appends every node to `built`, which is empty. Runs no Python code.
  TRIDENT_PROFILED void build(const Sources& sources, std::vector<guards::Ref>& built) const;

  // Which of the call's tensors and containers the nodes name, in the order of these nodes. Indexes
  // count the arguments' first, then the state's, in walk order.
  const std::vector<size_t>& tensors_used() const { return tensors_used_; }
  const std::vector<size_t>& containers_used() const { return containers_used_; }
  size_t size() const { return nodes_.size(); }
  // Shows the garbage collector every reference held.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Attribute {
    guards::Ref name;
    size_t value;
    bool slot;
  };
  struct Node {
    Kind kind;
    size_t index = 0;    // output, number, or position in tensors_used or containers_used
    guards::Ref object;  // constant, or the class to build
    std::vector<guards::Ref> keys;
    std::vector<size_t> children;
    std::vector<Attribute> attributes;
  };

  guards::Ref build_node(const Node& node, const Sources& sources,
                         const std::vector<guards::Ref>& built) const;

  std::vector<Node> nodes_;
  std::vector<size_t> tensors_used_;
  std::vector<size_t> containers_used_;
};

// What the forward changed in Python objects: replayed after the host program.
class Effects {
 public:
  // `effects`: list of tuples (kind, container index, key, node index).
  static Effects parse(PyObject* effects);
  // `containers`: those of the call that containers_used() names, in its order.
  TRIDENT_PROFILED void apply(const std::vector<guards::Ref>& containers,
                              const std::vector<guards::Ref>& built) const;
  // The container of each effect.
  const std::vector<size_t>& containers_used() const { return containers_used_; }
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind {
    kSetItem,
    kDeleteItem,
    kSetAttribute,
    kDeleteAttribute,
    kReplaceList,
    kExtendList
  };
  struct Effect {
    Kind kind;
    guards::Ref key;
    size_t node;
  };
  std::vector<Effect> effects_;
  std::vector<size_t> containers_used_;
};

}  // namespace trident::python
