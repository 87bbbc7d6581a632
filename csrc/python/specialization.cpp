#include "python/specialization.h"

#include <torch/csrc/autograd/python_variable.h>

namespace trident::python {

using guards::Ref;

namespace {

class ReleaseInterpreter {
 public:
  ReleaseInterpreter() : saved_(PyEval_SaveThread()) {}
  ~ReleaseInterpreter() { PyEval_RestoreThread(saved_); }
  ReleaseInterpreter(const ReleaseInterpreter&) = delete;
  ReleaseInterpreter& operator=(const ReleaseInterpreter&) = delete;

 private:
  PyThreadState* saved_;
};

}  // namespace

Specialization::Inputs::Inputs(const Specialization& specialization, const CallFacts& facts) {
  held.reserve(specialization.inputs.size());
  raw.reserve(specialization.inputs.size() + specialization.constants.size());
  for (const size_t index : specialization.inputs) {
    held.push_back(THPVariable_Unpack(facts.tensor(index)));
    raw.push_back(reinterpret_cast<trident_tensor>(held.back().unsafeGetTensorImpl()));
  }
  for (const at::Tensor& constant : specialization.constants) {
    raw.push_back(reinterpret_cast<trident_tensor>(constant.unsafeGetTensorImpl()));
  }
}

void Specialization::prepare(const CallFacts& facts) {
  const Inputs tensors(*this, facts);
  const std::vector<int64_t> values = symbols(facts.words());
  const ReleaseInterpreter release;
  program->prepare(tensors.raw.data(), values.data());
}

Ref Specialization::run(const CallFacts& facts, bool& compiled) {
  const Inputs given(*this, facts);
  const std::vector<trident_tensor>& raw = given.raw;
  std::vector<Ref> tensors(result.tensors_used().empty() ? 0 : facts.num_tensors());
  for (const size_t index : result.tensors_used())
    tensors[index] = Ref::borrow(facts.tensor(index));
  const bool needs_containers =
      !result.containers_used().empty() || !effects.containers_used().empty();
  std::vector<Ref> containers(needs_containers ? facts.num_containers() : 0);
  for (const auto* used : {&result.containers_used(), &effects.containers_used()}) {
    for (const size_t index : *used) containers[index] = Ref::borrow(facts.container(index));
  }

  const std::vector<int64_t> values = symbols(facts.words());
  const std::shared_ptr<host::GraphReplay> replay = graph;
  bool replayed = false;
  std::vector<c10::intrusive_ptr<c10::TensorImpl>> produced;
  {
    const ReleaseInterpreter release;
    if (replay && replay->matches(raw.data())) {
      replay->replay(raw.data(), produced);
      replayed = true;
    } else {
      compiled = program->run(raw.data(), values.data(), produced) > 0 || compiled;
    }
  }
  if (replay) graph_mismatches = replayed ? 0 : graph_mismatches + 1;
  std::vector<at::Tensor> outputs;
  outputs.reserve(produced.size());
  for (auto& tensor : produced) outputs.push_back(at::Tensor(std::move(tensor)));

  const std::vector<int64_t> numbers = program->numbers(values.data());
  const Sources sources{tensors, containers, outputs, numbers};
  const std::vector<Ref> built = result.build(sources);
  effects.apply(sources, built);
  return built.at(result_node);
}

Ref Specialization::input_objects(const CallFacts& facts) const {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) throw guards::PythonError();
  for (const size_t index : inputs) {
    if (PyList_Append(list.get(), facts.tensor(index)) < 0) throw guards::PythonError();
  }
  for (const at::Tensor& constant : constants) {
    const Ref object = Ref::steal(THPVariable_Wrap(constant));
    if (!object || PyList_Append(list.get(), object.get()) < 0) throw guards::PythonError();
  }
  return list;
}

}  // namespace trident::python
