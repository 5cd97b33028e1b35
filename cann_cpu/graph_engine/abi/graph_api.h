// SPDX-License-Identifier: Apache-2.0
// The implementation of ge::Graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph_engine/model/model.h"
#include "operator_impl.h"

namespace ge {

class GraphImpl {
 public:
  // The graph's model. Throws GraphError when none was loaded, and it has neither inputs nor outputs.
  static std::shared_ptr<const cann_cpu::graph::Model> model(const Graph& graph);
  static std::shared_ptr<const cann_cpu::graph::Model> model(const std::shared_ptr<GraphImpl>& impl);

  std::string name;
  std::string bytes;  // of the model that was loaded
  std::shared_ptr<const cann_cpu::graph::Model> loaded;
  // Or what it is built of.
  std::vector<std::shared_ptr<OperatorImpl>> inputs;
  std::vector<cann_cpu::graph::OutputOfOperator> outputs;
  std::shared_ptr<const cann_cpu::graph::Model> built;  // of these, until they are edited
};

}  // namespace ge
