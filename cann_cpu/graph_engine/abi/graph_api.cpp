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

// A node by its name, in the graph as it is now.
class NodeImpl {
 public:
  static const NodeImpl* of(const GNode& node) { return node.impl_.get(); }
  std::shared_ptr<const cann_cpu::graph::Model> model() const { return GraphImpl::model(graph); }

  std::shared_ptr<GraphImpl> graph;
  std::string name;
};

std::shared_ptr<const cann_cpu::graph::Model> GraphImpl::model(const std::shared_ptr<GraphImpl>& impl) {
  if (impl != nullptr && impl->loaded != nullptr) return impl->loaded;
  if (impl == nullptr || (impl->inputs.empty() && impl->outputs.empty())) {
    throw GraphError("the graph is empty: no model was loaded, and neither inputs nor outputs are set");
  }
  if (impl->built == nullptr) {
    impl->built = std::make_shared<const cann_cpu::graph::Model>(
        cann_cpu::graph::model_of(impl->name, impl->inputs, impl->outputs));
  }
  return impl->built;
}

std::shared_ptr<const cann_cpu::graph::Model> GraphImpl::model(const Graph& graph) {
  if (graph.impl_ != nullptr) graph.impl_->built = nullptr;  // operators may have changed
  return model(graph.impl_);
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
    for (size_t i = 0; i < count; ++i) {
      nodes.emplace_back(std::make_shared<NodeImpl>(NodeImpl{impl_, model->nodes[i].name}));
    }
  });
  return nodes;
}

std::vector<GNode> Graph::GetDirectNode() const { return GetAllNodes(); }

namespace {

using cann_cpu::graph::Model;
using cann_cpu::graph::ModelEdge;
using cann_cpu::graph::ModelNode;

const ModelNode* find_node(const Model& model, const std::string& name) {
  const auto found = std::ranges::find(model.nodes, name, &ModelNode::name);
  return found == model.nodes.end() ? nullptr : &*found;
}

// Calls `use` with each node but NetOutput and each of its edges: its place among the node's data inputs, or -1.
template <class Use>
void each_edge(const Model& model, const Use& use) {
  for (const ModelNode& node : model.nodes) {
    if (node.type == "NetOutput") continue;
    int32_t input = 0;
    for (const std::string& text : node.inputs) {
      const ModelEdge edge = cann_cpu::graph::parse_edge(node, text);
      use(node, edge.output < 0 ? -1 : input++, edge);
    }
  }
}

// What `look` gives for the node, or nothing: for a node that is in no graph, or was removed.
template <class Look>
auto look_at(const NodeImpl* of, const Look& look) {
  std::invoke_result_t<Look, const Model&, const ModelNode&> result{};
  guarded("ge::GNode", [&] {
    if (of == nullptr) return;
    const auto model = of->model();
    if (const ModelNode* node = find_node(*model, of->name)) result = look(*model, *node);
  });
  return result;
}

GNodePtr node_of(const NodeImpl* of, const std::string& name) {
  return std::make_shared<GNode>(std::make_shared<NodeImpl>(NodeImpl{of->graph, name}));
}

}  // namespace

graphStatus GNode::GetType(AscendString& type) const {
  const auto text = look_at(impl_.get(), [](const Model&, const ModelNode& node) { return node.type; });
  type = AscendString(text.c_str());
  return text.empty() ? GRAPH_FAILED : GRAPH_SUCCESS;
}

graphStatus GNode::GetName(AscendString& name) const {
  if (impl_ == nullptr) {
    return GRAPH_FAILED;
  }
  name = AscendString(impl_->name.c_str());
  return GRAPH_SUCCESS;
}

size_t GNode::GetInputsSize() const {
  return look_at(impl_.get(), [](const Model& model, const ModelNode& node) {
    size_t count = 0;
    each_edge(model,
              [&](const ModelNode& of, int32_t input, const ModelEdge&) { count += &of == &node && input >= 0; });
    return count;
  });
}

size_t GNode::GetOutputsSize() const {
  return look_at(impl_.get(), [](const Model& model, const ModelNode& node) {
    size_t count = node.output_descriptions.size();
    each_edge(model, [&](const ModelNode&, int32_t, const ModelEdge& edge) {
      if (edge.node == node.name && edge.output >= 0) count = std::max<size_t>(count, edge.output + 1);
    });
    return count;
  });
}

std::pair<GNodePtr, int32_t> GNode::GetInDataNodesAndPortIndexs(const int32_t index) const {
  return look_at(impl_.get(), [&](const Model& model, const ModelNode& node) {
    std::pair<GNodePtr, int32_t> source{nullptr, -1};
    each_edge(model, [&](const ModelNode& of, int32_t input, const ModelEdge& edge) {
      if (&of == &node && input >= 0 && input == index && !edge.node.empty()) {
        source = {node_of(impl_.get(), edge.node), edge.output};
      }
    });
    return source;
  });
}

std::vector<std::pair<GNodePtr, int32_t>> GNode::GetOutDataNodesAndPortIndexs(const int32_t index) const {
  return look_at(impl_.get(), [&](const Model& model, const ModelNode& node) {
    std::vector<std::pair<GNodePtr, int32_t>> readers;
    each_edge(model, [&](const ModelNode& of, int32_t input, const ModelEdge& edge) {
      if (input >= 0 && edge.node == node.name && edge.output == index) {
        readers.emplace_back(node_of(impl_.get(), of.name), input);
      }
    });
    return readers;
  });
}

std::vector<GNodePtr> GNode::GetInControlNodes() const {
  return look_at(impl_.get(), [&](const Model& model, const ModelNode& node) {
    std::vector<GNodePtr> nodes;
    each_edge(model, [&](const ModelNode& of, int32_t input, const ModelEdge& edge) {
      if (&of == &node && input < 0) nodes.push_back(node_of(impl_.get(), edge.node));
    });
    return nodes;
  });
}

std::vector<GNodePtr> GNode::GetOutControlNodes() const {
  return look_at(impl_.get(), [&](const Model& model, const ModelNode& node) {
    std::vector<GNodePtr> nodes;
    each_edge(model, [&](const ModelNode& of, int32_t input, const ModelEdge& edge) {
      if (input < 0 && edge.node == node.name) nodes.push_back(node_of(impl_.get(), of.name));
    });
    return nodes;
  });
}

namespace {

std::shared_ptr<OperatorImpl> operator_of(const GraphImpl& graph, const GNode& node) {
  const NodeImpl* const of = NodeImpl::of(node);
  for (const auto& op : cann_cpu::graph::operators_of(graph.inputs, graph.outputs)) {
    if (of != nullptr && op->name == of->name) return op;
  }
  throw GraphError(std::string("there is no node '") + (of == nullptr ? "" : of->name) +
                   "' among the operators of the graph");
}

// The data input of an operator at a node's place.
OperatorImpl::Input& input_at(const std::shared_ptr<GraphImpl>& graph, OperatorImpl& op, int32_t place) {
  const auto model = GraphImpl::model(graph);
  const ModelNode* const node = find_node(*model, op.name);
  if (place < 0 || node == nullptr || static_cast<size_t>(place) >= node->input_descriptions.size()) {
    throw GraphError("node '" + op.name + "' has no input " + std::to_string(place));
  }
  const auto input = std::ranges::find(op.inputs, node->input_descriptions[place].name, &OperatorImpl::Input::name);
  if (input == op.inputs.end()) {
    throw GraphError("optional input " + std::to_string(place) + " of node '" + op.name + "' was not given");
  }
  return *input;
}

// Edits the operators of a graph, whose model is then another one.
template <class Edit>
graphStatus edited(const char* function, const std::shared_ptr<GraphImpl>& graph, const Edit& edit) {
  return guarded(function, [&] {
    if (graph == nullptr || graph->loaded != nullptr) throw GraphError("a graph that was loaded cannot be edited");
    edit();
    graph->built = nullptr;
  });
}

}  // namespace

graphStatus Graph::RemoveNode(GNode& node) {
  return edited(__func__, impl_, [&] {
    const auto removed = operator_of(*impl_, node);
    for (const auto& output : impl_->outputs) {
      if (output.op == removed) throw GraphError("node '" + removed->name + "' is an output of the graph");
    }
    for (const auto& weak : removed->users) {
      const auto user = weak.lock();
      if (user == nullptr) continue;
      for (auto& input : user->inputs) {
        if (input.source == removed) input.source = nullptr;
      }
      std::erase(user->controls, removed);
    }
    removed->controls.clear();
    removed->inputs.clear();
    std::erase(impl_->inputs, removed);
  });
}

graphStatus Graph::RemoveEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node,
                              const int32_t dst_port_index) {
  return edited(__func__, impl_, [&] {
    const auto source = operator_of(*impl_, src_node), reader = operator_of(*impl_, dst_node);
    if (src_port_index < 0) {
      std::erase(reader->controls, source);
    } else {
      input_at(impl_, *reader, dst_port_index).source = nullptr;
    }
  });
}

graphStatus Graph::AddDataEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node,
                               const int32_t dst_port_index) {
  return edited(__func__, impl_, [&] {
    const auto source = operator_of(*impl_, src_node), reader = operator_of(*impl_, dst_node);
    auto& input = input_at(impl_, *reader, dst_port_index);
    input = {input.name, source, "", static_cast<size_t>(src_port_index)};
    source->users.push_back(reader);
  });
}

graphStatus Graph::AddControlEdge(GNode& src_node, GNode& dst_node) {
  return edited(__func__, impl_, [&] {
    const auto source = operator_of(*impl_, src_node), reader = operator_of(*impl_, dst_node);
    reader->controls.push_back(source);
    source->users.push_back(reader);
  });
}

}  // namespace ge
