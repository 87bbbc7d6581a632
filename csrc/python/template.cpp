#include "python/template.h"

#include <torch/csrc/autograd/python_variable.h>

#include <bit>
#include <stdexcept>

namespace trident::python {

using guards::PythonError;
using guards::Ref;

namespace {

Ref checked(PyObject* object) {
  if (!object) throw PythonError();
  return Ref::steal(object);
}

void check(int status) {
  if (status < 0) throw PythonError();
}

size_t to_size(PyObject* object) {
  const size_t value = PyLong_AsSize_t(object);
  if (value == static_cast<size_t>(-1) && PyErr_Occurred()) throw PythonError();
  return value;
}

// The builtin type whose storage instances of `type` have.
PyTypeObject* native_base(PyTypeObject* type) {
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE) type = type->tp_base;
  return type;
}

// An empty instance, made by the builtin base so that no Python __new__ or __init__ runs: what they
// would have done shows in the contents that were recorded.
Ref new_instance(PyTypeObject* type, PyObject* arguments) {
  PyTypeObject* base = native_base(type);
  return checked(base->tp_new(type, arguments, nullptr));
}

// Gives a list or a collections.deque other contents.
void replace_items(PyObject* container, PyObject* items) {
  if (PyList_Check(container)) {
    return check(PyList_SetSlice(container, 0, PyList_GET_SIZE(container), items));
  }
  checked(PyObject_CallMethod(container, "clear", nullptr));
  checked(PyObject_CallMethod(container, "extend", "O", items));
}

bool is_ordered(PyObject* dict) { return PyObject_TypeCheck(dict, &PyODict_Type); }

}  // namespace

Template Template::parse(PyObject* nodes) {
  Template result;
  const Ref fast = checked(PySequence_Fast(nodes, "nodes"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject *payload, *children, *attributes;
    int kind;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast.get(), i), "iOO!O!", &kind, &payload,
                          &PyTuple_Type, &children, &PyTuple_Type, &attributes)) {
      throw PythonError();
    }
    Node node{static_cast<Kind>(kind), 0, Ref(), {}, {}, {}};
    switch (node.kind) {
      case Kind::kOutput:
      case Kind::kInteger:
      case Kind::kDouble:
        node.index = to_size(payload);
        break;
      case Kind::kTensor:
        node.index = result.tensors_used_.size();
        result.tensors_used_.push_back(to_size(payload));
        break;
      case Kind::kContainer:
        node.index = result.containers_used_.size();
        result.containers_used_.push_back(to_size(payload));
        break;
      default:
        node.object = Ref::borrow(payload);
    }
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(children); ++c) {
      PyObject* child = PyTuple_GET_ITEM(children, c);
      if (node.kind == Kind::kDict) {
        node.keys.push_back(Ref::borrow(PyTuple_GetItem(child, 0)));
        child = PyTuple_GetItem(child, 1);
      }
      node.children.push_back(to_size(child));
      if (node.children.back() >= result.nodes_.size()) {
        throw std::invalid_argument("a template node names a child that does not precede it");
      }
    }
    for (Py_ssize_t a = 0; a < PyTuple_GET_SIZE(attributes); ++a) {
      PyObject* attribute = PyTuple_GET_ITEM(attributes, a);
      node.attributes.push_back({Ref::borrow(PyTuple_GetItem(attribute, 0)),
                                 to_size(PyTuple_GetItem(attribute, 1)),
                                 PyTuple_GetItem(attribute, 2) == Py_True});
    }
    result.nodes_.push_back(std::move(node));
  }
  return result;
}

Ref Template::build_node(const Node& node, const Sources& sources,
                         const std::vector<Ref>& built) const {
  auto* type = reinterpret_cast<PyTypeObject*>(node.object.get());
  switch (node.kind) {
    case Kind::kOutput:
      return checked(THPVariable_Wrap(at::Tensor(sources.outputs.at(node.index))));
    case Kind::kTensor:
      return sources.tensors.at(node.index);
    case Kind::kContainer:
      return sources.containers.at(node.index);
    case Kind::kInteger:
      return checked(PyLong_FromLongLong(sources.numbers.at(node.index)));
    case Kind::kDouble:
      return checked(PyFloat_FromDouble(std::bit_cast<double>(sources.numbers.at(node.index))));
    case Kind::kConstant:
      return node.object;
    case Kind::kTuple: {
      Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(node.children.size())));
      for (size_t i = 0; i < node.children.size(); ++i) {
        PyTuple_SET_ITEM(items.get(), static_cast<Py_ssize_t>(i),
                         Ref(built[node.children[i]]).release());
      }
      if (type == &PyTuple_Type) return items;
      const Ref arguments = checked(PyTuple_Pack(1, items.get()));
      return new_instance(type, arguments.get());
    }
    case Kind::kList: {
      const Ref no_arguments = checked(PyTuple_New(0));
      Ref list =
          type == &PyList_Type ? checked(PyList_New(0)) : new_instance(type, no_arguments.get());
      for (const size_t child : node.children) check(PyList_Append(list.get(), built[child].get()));
      return list;
    }
    case Kind::kDict: {
      const Ref no_arguments = checked(PyTuple_New(0));
      Ref dict =
          type == &PyDict_Type ? checked(PyDict_New()) : new_instance(type, no_arguments.get());
      const bool ordered = is_ordered(dict.get());
      for (size_t i = 0; i < node.children.size(); ++i) {
        PyObject* key = node.keys[i].get();
        PyObject* value = built[node.children[i]].get();
        check(ordered ? PyODict_SetItem(dict.get(), key, value)
                      : PyDict_SetItem(dict.get(), key, value));
      }
      return dict;
    }
    case Kind::kObject: {
      const Ref no_arguments = checked(PyTuple_New(0));
      return new_instance(type, no_arguments.get());
    }
  }
  throw std::logic_error("unknown template node");
}

void Template::build(const Sources& sources, std::vector<Ref>& built) const {
  built.reserve(nodes_.size());
  for (const Node& node : nodes_) {
    Ref object = build_node(node, sources, built);
    for (const Attribute& attribute : node.attributes) {
      PyObject* value = built[attribute.value].get();
      if (attribute.slot) {
        check(PyObject_GenericSetAttr(object.get(), attribute.name.get(), value));
        continue;
      }
      const Ref dict = checked(PyObject_GenericGetDict(object.get(), nullptr));
      check(PyDict_SetItem(dict.get(), attribute.name.get(), value));
    }
    built.push_back(std::move(object));
  }
}

int Template::traverse(visitproc visit, void* arg) const {
  for (const Node& node : nodes_) {
    Py_VISIT(node.object.get());
    for (const Ref& key : node.keys) Py_VISIT(key.get());
    for (const Attribute& attribute : node.attributes) Py_VISIT(attribute.name.get());
  }
  return 0;
}

int Effects::traverse(visitproc visit, void* arg) const {
  for (const Effect& effect : effects_) Py_VISIT(effect.key.get());
  return 0;
}

Effects Effects::parse(PyObject* effects) {
  Effects result;
  const Ref fast = checked(PySequence_Fast(effects, "effects"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    int kind;
    Py_ssize_t container, node;
    PyObject* key;
    if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast.get(), i), "inOn", &kind, &container, &key,
                          &node)) {
      throw PythonError();
    }
    result.effects_.push_back(
        {static_cast<Kind>(kind), Ref::borrow(key), static_cast<size_t>(node)});
    result.containers_used_.push_back(static_cast<size_t>(container));
  }
  return result;
}

void Effects::apply(const std::vector<Ref>& containers, const std::vector<Ref>& built) const {
  for (size_t i = 0; i < effects_.size(); ++i) {
    const Effect& effect = effects_[i];
    PyObject* container = containers.at(i).get();
    Ref dict = Ref::borrow(container);
    if (effect.kind == Kind::kSetAttribute || effect.kind == Kind::kDeleteAttribute) {
      dict = checked(PyObject_GenericGetDict(container, nullptr));
    }
    switch (effect.kind) {
      case Kind::kSetItem:
      case Kind::kSetAttribute: {
        PyObject* value = built.at(effect.node).get();
        check(is_ordered(dict.get()) ? PyODict_SetItem(dict.get(), effect.key.get(), value)
                                     : PyDict_SetItem(dict.get(), effect.key.get(), value));
        break;
      }
      case Kind::kDeleteItem:
      case Kind::kDeleteAttribute:
        check(is_ordered(dict.get()) ? PyODict_DelItem(dict.get(), effect.key.get())
                                     : PyDict_DelItem(dict.get(), effect.key.get()));
        break;
      case Kind::kReplaceList:
        replace_items(container, built.at(effect.node).get());
        break;
      case Kind::kExtendList: {
        const Py_ssize_t end = PyList_GET_SIZE(container);
        check(PyList_SetSlice(container, end, end, built.at(effect.node).get()));
        break;
      }
    }
  }
}

}  // namespace trident::python
