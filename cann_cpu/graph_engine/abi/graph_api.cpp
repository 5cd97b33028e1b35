// SPDX-License-Identifier: Apache-2.0
// ge::Graph and ge::GNode.
#include "graph_api.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "cann_cpu/fault.h"
#include "errors.h"
#include "graph_engine/model/edge.h"

namespace ge {

using cann_cpu::graph::GraphError;
using cann_cpu::graph::guarded;

class NodeImpl {
 public:
  const cann_cpu::graph::ModelNode& node() const { return model->nodes[place]; }

  std::shared_ptr<const cann_cpu::graph::Model> model;
  size_t place = 0;
};

std::shared_ptr<const cann_cpu::graph::Model> GraphImpl::model(const Graph& graph) {
  const auto& impl = graph.impl_;
  if (impl != nullptr && impl->loaded != nullptr) return impl->loaded;
  if (impl == nullptr || (impl->inputs.empty() && impl->outputs.empty())) {
    throw GraphError("the graph is empty: no model was loaded, and neither inputs nor outputs are set");
  }
  return std::make_shared<const cann_cpu::graph::Model>(
      cann_cpu::graph::model_of(impl->name, impl->inputs, impl->outputs));
}

Graph::Graph(const char_t* name) : impl_(std::make_shared<GraphImpl>()) { impl_->name = name == nullptr ? "" : name; }

Graph& Graph::SetInputs(const std::vector<Operator>& inputs) {
  if (impl_ == nullptr) impl_ = std::make_shared<GraphImpl>();
  impl_->inputs.clear();
  for (const Operator& input : inputs) {
    if (!input.IsEmpty()) impl_->inputs.push_back(OperatorImpl::of(input));
  }
  return *this;
}

Graph& Graph::SetOutputs(const std::vector<Operator>& outputs) {
  std::vector<std::pair<Operator, AscendString>> named;
  for (const Operator& output : outputs) named.emplace_back(output, "");
  return SetOutputs(named);
}

Graph& Graph::SetOutputs(const std::vector<std::pair<Operator, AscendString>>& outputs) {
  if (impl_ == nullptr) impl_ = std::make_shared<GraphImpl>();
  impl_->outputs.clear();
  for (const auto& [op, name] : outputs) {
    if (!op.IsEmpty()) impl_->outputs.push_back({OperatorImpl::of(op), name.GetString()});
  }
  return *this;
}

graphStatus Graph::LoadFromSerializedModelArray(const void* serialized_model, size_t size) {
  return guarded(__func__, [&] {
    if (serialized_model == nullptr) {
      throw GraphError("LoadFromSerializedModelArray: the model is a null pointer");
    }
    auto impl = std::make_shared<GraphImpl>();
    impl->bytes.assign(static_cast<const char*>(serialized_model), size);
    impl->loaded = std::make_shared<const cann_cpu::graph::Model>(cann_cpu::graph::read_model(serialized_model, size));
    impl_ = std::move(impl);
  });
}

graphStatus Graph::LoadFromFile(const char_t* file_name) {
  std::string model;
  const graphStatus status = guarded(__func__, [&] {
    std::ifstream file(file_name, std::ios::binary);
    model.assign(std::istreambuf_iterator<char>(file), {});
    if (!file) {
      throw GraphError(std::string("cannot read ") + file_name);
    }
  });
  return status == GRAPH_SUCCESS ? LoadFromSerializedModelArray(model.data(), model.size()) : status;
}

graphStatus Graph::SaveToFile(const char_t* file_name) const {
  return guarded(__func__, [&] {
    GraphImpl::model(*this);
    std::ofstream file(file_name, std::ios::binary);
    file << impl_->bytes;
    if (cann_cpu::fault_of("disk", ge::GRAPH_FAILED) != 0 || !file.flush()) {
      throw GraphError(std::string("cannot write ") + file_name);
    }
  });
}

Graph& Graph::SetNeedIteration(bool need_iteration) {
  if (need_iteration) throw GraphError("ge::Graph::SetNeedIteration(true) is not supported by cann_cpu");
  return *this;
}

graphStatus Graph::GetName(AscendString& name) const {
  if (impl_ == nullptr) return GRAPH_FAILED;
  name = AscendString(impl_->name.c_str());
  return GRAPH_SUCCESS;
}

graphStatus Graph::CopyFrom(const Graph& src_graph) {
  impl_ = src_graph.impl_ == nullptr ? nullptr : std::make_shared<GraphImpl>(*src_graph.impl_);
  return GRAPH_SUCCESS;
}

std::vector<GNode> Graph::GetAllNodes() const {
  std::vector<GNode> nodes;
  guarded(__func__, [&] {
    const auto model = GraphImpl::model(*this);
    const size_t count = model->nodes.size() - (impl_->loaded == nullptr);  // without the NetOutput that we have added
    for (size_t i = 0; i < count; ++i) nodes.emplace_back(std::make_shared<NodeImpl>(NodeImpl{model, i}));
  });
  return nodes;
}

std::vector<GNode> Graph::GetDirectNode() const { return GetAllNodes(); }

graphStatus GNode::GetType(AscendString& type) const {
  if (impl_ == nullptr) {
    return GRAPH_FAILED;
  }
  type = AscendString(impl_->node().type.c_str());
  return GRAPH_SUCCESS;
}

graphStatus GNode::GetName(AscendString& name) const {
  if (impl_ == nullptr) {
    return GRAPH_FAILED;
  }
  name = AscendString(impl_->node().name.c_str());
  return GRAPH_SUCCESS;
}

namespace {

using cann_cpu::graph::ModelEdge;

GNodePtr node_at(const NodeImpl& of, size_t place) {
  return std::make_shared<GNode>(std::make_shared<NodeImpl>(NodeImpl{of.model, place}));
}

// Calls `use` with each node, as far as the graph's own go, and each of its edges: its place among the node's data
// inputs, what it names.
template <class Use>
void each_edge(const NodeImpl& of, const Use& use) {
  for (size_t place = 0; place < of.model->nodes.size(); ++place) {
    const auto& node = of.model->nodes[place];
    if (node.type == "NetOutput") continue;
    int32_t input = 0;
    for (const std::string& text : node.inputs) {
      const ModelEdge edge = cann_cpu::graph::parse_edge(node, text);
      use(place, edge.output < 0 ? -1 : input++, edge);
    }
  }
}

}  // namespace

size_t GNode::GetInputsSize() const {
  if (impl_ == nullptr) return 0;
  const auto& node = impl_->node();
  return std::ranges::count_if(
      node.inputs, [&](const std::string& text) { return cann_cpu::graph::parse_edge(node, text).output >= 0; });
}

size_t GNode::GetOutputsSize() const {
  if (impl_ == nullptr) return 0;
  size_t count = impl_->node().output_descriptions.size();
  each_edge(*impl_, [&](size_t, int32_t, const ModelEdge& edge) {
    if (edge.node == impl_->node().name && edge.output >= 0) count = std::max<size_t>(count, edge.output + 1);
  });
  return count;
}

std::pair<GNodePtr, int32_t> GNode::GetInDataNodesAndPortIndexs(const int32_t index) const {
  std::pair<GNodePtr, int32_t> source{nullptr, -1};
  if (impl_ == nullptr) return source;
  each_edge(*impl_, [&](size_t place, int32_t input, const ModelEdge& edge) {
    if (place != impl_->place || input != index || input < 0) return;
    const auto found = std::ranges::find(impl_->model->nodes, edge.node, &cann_cpu::graph::ModelNode::name);
    if (found != impl_->model->nodes.end()) {
      source = {node_at(*impl_, found - impl_->model->nodes.begin()), edge.output};
    }
  });
  return source;
}

std::vector<std::pair<GNodePtr, int32_t>> GNode::GetOutDataNodesAndPortIndexs(const int32_t index) const {
  std::vector<std::pair<GNodePtr, int32_t>> readers;
  if (impl_ == nullptr) return readers;
  each_edge(*impl_, [&](size_t place, int32_t input, const ModelEdge& edge) {
    if (input >= 0 && edge.node == impl_->node().name && edge.output == index) {
      readers.emplace_back(node_at(*impl_, place), input);
    }
  });
  return readers;
}

std::vector<GNodePtr> GNode::GetInControlNodes() const {
  std::vector<GNodePtr> nodes;
  if (impl_ == nullptr) return nodes;
  each_edge(*impl_, [&](size_t place, int32_t input, const ModelEdge& edge) {
    if (place != impl_->place || input >= 0) return;
    const auto found = std::ranges::find(impl_->model->nodes, edge.node, &cann_cpu::graph::ModelNode::name);
    if (found != impl_->model->nodes.end()) nodes.push_back(node_at(*impl_, found - impl_->model->nodes.begin()));
  });
  return nodes;
}

std::vector<GNodePtr> GNode::GetOutControlNodes() const {
  std::vector<GNodePtr> nodes;
  if (impl_ == nullptr) return nodes;
  each_edge(*impl_, [&](size_t place, int32_t input, const ModelEdge& edge) {
    if (input < 0 && edge.node == impl_->node().name) nodes.push_back(node_at(*impl_, place));
  });
  return nodes;
}

}  // namespace ge
