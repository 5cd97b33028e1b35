// SPDX-License-Identifier: Apache-2.0
// ge::Graph: a graph read from a serialized model, or built of operators.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/gnode.h"
#include "graph/operator.h"

namespace ge {

class GraphImpl;

class CANN_EXPORT Graph {
 public:
  explicit Graph(const char_t* name);
  Graph() = default;
  ~Graph() = default;

  // Reads a serialized ge.proto.ModelDef; fails on anything else (GEGetErrorMsg says why).
  graphStatus LoadFromSerializedModelArray(const void* serialized_model, size_t size);
  // The same for a file, such as torchair.dynamo_export's .air.
  graphStatus LoadFromFile(const char_t* file_name);
  // Writes the serialized model as it was read.
  graphStatus SaveToFile(const char_t* file_name) const;
  // The operators connected with these are the graph's. An output is an operator's first, or the one of the name.
  Graph& SetInputs(const std::vector<Operator>& inputs);
  Graph& SetOutputs(const std::vector<Operator>& outputs);
  Graph& SetOutputs(const std::vector<std::pair<Operator, AscendString>>& outputs);
#if !_GLIBCXX_USE_CXX11_ABI
  explicit Graph(const std::string& name);
  const std::string& GetName() const;  // valid until this thread asks for another one
  Graph& SetOutputs(const std::vector<std::pair<Operator, std::string>>& outputs);
#endif
  Graph& SetNeedIteration(bool need_iteration);  // only false: a run is one iteration
  graphStatus CopyFrom(const Graph& src_graph);
  std::vector<GNode> GetAllNodes() const;
  std::vector<GNode> GetDirectNode() const;  // those that are in no subgraph: all, as there are none
  graphStatus GetName(AscendString& name) const;

  // Edit a graph that is built of operators.
  graphStatus RemoveNode(GNode& node);
  graphStatus RemoveEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node, const int32_t dst_port_index);
  graphStatus AddDataEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node, const int32_t dst_port_index);
  graphStatus AddControlEdge(GNode& src_node, GNode& dst_node);

 private:
  friend class GraphImpl;
  std::shared_ptr<GraphImpl> impl_;
};

}  // namespace ge
