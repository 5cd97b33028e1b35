// SPDX-License-Identifier: Apache-2.0
// A compiled graph: nodes in the order of execution, edges resolved, every node type known.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cann_cpu/stored_tensor.h"
#include "graph_engine/model/model.h"

namespace cann_cpu::graph {

struct CustomNode;
struct NodeType;

// An output of a node, by the node's place in CompiledGraph::nodes.
struct Edge {
  static constexpr int kAbsent = -1;
  int node = kAbsent;
  int output = 0;
  bool absent() const { return node == kAbsent; }
};

enum class Role { input, constant, compute, output, fused /* into a later node */ };

struct Node {
  const ModelNode* model = nullptr;
  Role role = Role::compute;
  std::vector<Edge> inputs;                  // without control edges; of a built-in node, in the order of its row
  std::vector<std::string> input_names;      // beside inputs; empty where the model has none
  const NodeType* type = nullptr;            // of a built-in node
  std::shared_ptr<const CustomNode> custom;  // of an operator package's node
  StoredTensor constant;
  int64_t input_index = 0;
  std::map<int, int> last_reads;  // the place of each output's last reader; after the last node for a graph's output
  std::vector<int> last_uses;     // nodes whose outputs are not needed after this one
  bool may_be_written = false;    // by an operator package's node whose prototype does not declare it
  bool in_place = false;          // of AsStrided: what is written to the view is copied back to where it lies
};

struct GraphOutput {
  Edge source;
  ge::DataType dtype = ge::DT_UNDEFINED;
  std::vector<int64_t> shape;  // -1: known at run time only
  int reused_input = -1;       // the input whose memory the output is written to, or -1
};

using Options = std::map<std::string, std::string>;

class CompiledGraph {
 public:
  // Throws GraphError: an unknown node type, an edge to nowhere, a cycle.
  CompiledGraph(std::shared_ptr<const Model> model, const Options& options);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  size_t input_count() const { return input_count_; }
  const std::string& name() const { return model_->name; }
  // Whether the shapes of all inputs and outputs are known now.
  bool is_static() const { return is_static_; }

 private:
  std::shared_ptr<const Model> model_;
  std::vector<Node> nodes_;
  std::vector<GraphOutput> outputs_;
  size_t input_count_ = 0;
  bool is_static_ = true;
};

}  // namespace cann_cpu::graph
