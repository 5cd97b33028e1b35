// SPDX-License-Identifier: Apache-2.0
// The implementation of ge::Operator, and a graph that programs build of operators.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/operator.h"
#include "graph_engine/model/model.h"
#include "graph_engine/model/prototype.h"

namespace ge {

class OperatorImpl {
 public:
  struct Input {
    std::string name;
    std::shared_ptr<OperatorImpl> source;
    std::string output;  // by name, or empty: the one of this place
    size_t place = 0;
  };

  static const std::shared_ptr<OperatorImpl>& of(const Operator& op) { return op.operator_impl_; }
  static Operator make(const char* name, cann_cpu::graph::Prototype prototype) {
    Operator op;
    op.operator_impl_ = std::make_shared<OperatorImpl>(OperatorImpl{name, std::move(prototype)});
    return op;
  }

  std::string name;
  cann_cpu::graph::Prototype prototype;
  cann_cpu::graph::Attributes attributes{};
  std::vector<Input> inputs{};  // in the order in which they were set, each name once
  std::vector<std::shared_ptr<OperatorImpl>> controls{};
  std::vector<std::weak_ptr<OperatorImpl>> users{};
  // Descriptions of inputs and outputs that were given one, in this order.
  std::vector<cann_cpu::graph::TensorDescription> input_descriptions{}, output_descriptions{};
};

}  // namespace ge

namespace cann_cpu::graph {

struct OutputOfOperator {
  std::shared_ptr<ge::OperatorImpl> op;
  std::string output;  // by name, or empty: the first
};

// All operators that are connected with these, in the order in which they are found.
std::vector<std::shared_ptr<ge::OperatorImpl>> operators_of(
    const std::vector<std::shared_ptr<ge::OperatorImpl>>& inputs, const std::vector<OutputOfOperator>& outputs);

// The graph of all operators that are connected with these. Throws GraphError where an output's name is not known.
Model model_of(const std::string& name, const std::vector<std::shared_ptr<ge::OperatorImpl>>& inputs,
               const std::vector<OutputOfOperator>& outputs);

}  // namespace cann_cpu::graph
