// SPDX-License-Identifier: Apache-2.0
// An edge of a model's graph, as a node's inputs name it.
#pragma once

#include <string>

#include "model.h"

namespace cann_cpu::graph {

struct ModelEdge {
  std::string node;
  int output = 0;  // -1: a control edge
};

// Reads one of a node's inputs. Throws GraphError when it is not written as node:output.
ModelEdge parse_edge(const ModelNode& node, const std::string& text);

}  // namespace cann_cpu::graph
