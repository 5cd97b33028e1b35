// SPDX-License-Identifier: Apache-2.0
// The table of built-in node types: one row a type, over the aclnn functions that eager calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph_engine/abi/registry.h"

namespace cann_cpu::graph {

class NodeCall;

// A node's outputs, in order: made from one tensor or a list of them.
struct Outputs : std::vector<at::Tensor> {
  Outputs(at::Tensor tensor) { push_back(std::move(tensor)); }
  Outputs(std::vector<at::Tensor> tensors) : std::vector<at::Tensor>(std::move(tensors)) {}
};

// Computes a node's outputs from its inputs and attributes; throws to reject.
using NodeFunction = std::function<Outputs(NodeCall&)>;

struct NodeType {
  const char* type;
  NodeFunction run;
  // Optional inputs and attributes that torchair asks for before it uses them: "name name ...".
  const char* optional_inputs = "";
  const char* attributes = "";

  Prototype prototype() const;
};

// The row of a node type, or nullptr.
const NodeType* find_node_type(const std::string& type);

// The parts of the table, by subject: nodes/<subject>.cpp.
using NodeTable = std::vector<NodeType>;
extern const NodeTable kPointwiseNodes, kComparisonNodes, kReductionNodes, kLinearAlgebraNodes, kNormalizationNodes,
    kIndexingNodes, kViewNodes, kCreationNodes, kRandomNodes, kActivationNodes, kForeachNodes, kVisionNodes,
    kAttentionNodes, kCollectiveNodes;

}  // namespace cann_cpu::graph
