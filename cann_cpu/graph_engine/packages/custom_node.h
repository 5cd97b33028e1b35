// SPDX-License-Identifier: Apache-2.0
// A node of an operator package. It is executed through its aclnn functions and needs no code here.
#pragma once

#include <memory>
#include <string>

#include "graph_engine/compiled_graph/aclnn_function.h"
#include "graph_engine/compiled_graph/node_call.h"
#include "graph_engine/model/prototype.h"

namespace cann_cpu::graph {

struct CustomNode {
  const Prototype* prototype;
  AclnnFunction function;  // aclnn<Type>: inputs, attributes and outputs of the prototype, in IR order

  Outputs run(NodeCall& call) const;
};

// What executes nodes of a type, or nullptr and the reason: no prototype, or no aclnn functions.
std::shared_ptr<const CustomNode> find_custom_node(const std::string& type, std::string& reason);

}  // namespace cann_cpu::graph
