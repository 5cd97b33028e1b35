// SPDX-License-Identifier: Apache-2.0
// The table of built-in node types: one row a type, over the aclnn functions that eager calls.
#pragma once

#include <string>
#include <vector>

#include "graph_engine/compiled_graph/node_call.h"
#include "graph_engine/model/prototype.h"

namespace cann_cpu::graph {

struct NodeType {
  const char* type;
  NodeFunction run;
  // Optional inputs and attributes, "name name ...": torchair asks for them before it uses them. It leaves inputs out
  // that are not given; these have their places after the required ones, in this order.
  const char* optional_inputs = "";
  const char* attributes = "";
  // Outputs, where torchair asks for the whole prototype (torchair.ge.custom_op). All inputs are listed then.
  const char* outputs = "";

  Prototype prototype() const;
  std::vector<std::string> optional_input_names() const;
};

// The row of a node type, or nullptr.
const NodeType* find_node_type(const std::string& type);

// The parts of the table, by subject: nodes/<subject>.cpp.
using NodeTable = std::vector<NodeType>;
extern const NodeTable kPointwiseNodes, kComparisonNodes, kReductionNodes, kLinearAlgebraNodes, kNormalizationNodes,
    kIndexingNodes, kViewNodes, kCreationNodes, kRandomNodes, kActivationNodes, kForeachNodes, kVisionNodes,
    kAttentionNodes, kExpertNodes, kCollectiveNodes, kQuantizationNodes;

}  // namespace cann_cpu::graph
