// How a call's result, and the effects of its Python code, are rebuilt from tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "abi/profiled.h"
#include "guards/python.h"

namespace trident::python {

// What a specialization rebuilds objects from: the tensors and containers of this call (arguments
// first, then state, in walk order), the host program's outputs and its numbers.
struct Sources {
  const std::vector<guards::Ref>& tensors;
  const std::vector<guards::Ref>& containers;
  const std::vector<at::Tensor>& outputs;
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

  // Builds every node. Runs no Python code.
  TRIDENT_PROFILED std::vector<guards::Ref> build(const Sources& sources) const;

  // Which of the call's tensors and containers the nodes name.
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
    size_t index = 0;    // output, tensor, container, number
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
  TRIDENT_PROFILED void apply(const Sources& sources, const std::vector<guards::Ref>& built) const;
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
    size_t container;
    guards::Ref key;
    size_t node;
  };
  std::vector<Effect> effects_;
  std::vector<size_t> containers_used_;
};

}  // namespace trident::python
