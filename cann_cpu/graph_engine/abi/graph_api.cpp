// SPDX-License-Identifier: Apache-2.0
// ge::Graph and ge::GNode.
#include "graph_api.h"

#include <fstream>
#include <iterator>

#include "cann_cpu/fault.h"
#include "errors.h"

namespace ge {

using cann_cpu::graph::GraphError;
using cann_cpu::graph::guarded;

class NodeImpl {
 public:
  std::string name;
  std::string type;
};

std::shared_ptr<const cann_cpu::graph::Model> GraphImpl::model(const Graph& graph) {
  if (graph.impl_ == nullptr || graph.impl_->loaded == nullptr) {
    throw GraphError("the graph is empty: no model was loaded");
  }
  return graph.impl_->loaded;
}

Graph::Graph(const char_t*) : impl_(std::make_shared<GraphImpl>()) {}

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

graphStatus Graph::CopyFrom(const Graph& src_graph) {
  impl_ = src_graph.impl_ == nullptr ? nullptr : std::make_shared<GraphImpl>(*src_graph.impl_);
  return GRAPH_SUCCESS;
}

std::vector<GNode> Graph::GetAllNodes() const {
  std::vector<GNode> nodes;
  if (impl_ != nullptr && impl_->loaded != nullptr) {
    for (const auto& node : impl_->loaded->nodes) {
      nodes.emplace_back(std::make_shared<NodeImpl>(NodeImpl{node.name, node.type}));
    }
  }
  return nodes;
}

graphStatus GNode::GetType(AscendString& type) const {
  if (impl_ == nullptr) {
    return GRAPH_FAILED;
  }
  type = AscendString(impl_->type.c_str());
  return GRAPH_SUCCESS;
}

graphStatus GNode::GetName(AscendString& name) const {
  if (impl_ == nullptr) {
    return GRAPH_FAILED;
  }
  name = AscendString(impl_->name.c_str());
  return GRAPH_SUCCESS;
}

}  // namespace ge
