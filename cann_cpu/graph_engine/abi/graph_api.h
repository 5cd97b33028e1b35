// SPDX-License-Identifier: Apache-2.0
// The implementation of ge::Graph.
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"
#include "graph_engine/model/model.h"

namespace ge {

class GraphImpl {
 public:
  // The graph's model. Throws GraphError when none was loaded.
  static std::shared_ptr<const cann_cpu::graph::Model> model(const Graph& graph);

  std::string bytes;
  std::shared_ptr<const cann_cpu::graph::Model> loaded;
};

}  // namespace ge
