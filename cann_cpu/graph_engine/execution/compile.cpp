// SPDX-License-Identifier: Apache-2.0
// Compiles a model: resolves its edges, orders its nodes, looks their types up.
#include "graph_engine/compiled_graph/graph.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <queue>
#include <set>

#include "acl/acl_rt.h"
#include "cann_cpu/device_memory.h"
#include "fusion.h"
#include "graph_engine/compiled_graph/stored_tensor.h"
#include "graph_engine/model/attributes.h"
#include "graph_engine/model/dtypes.h"
#include "graph_engine/model/edge.h"
#include "graph_engine/nodes/node_types.h"
#include "graph_engine/nodes/torch_operator.h"
#include "graph_engine/packages/custom_node.h"

namespace cann_cpu::graph {
namespace {

bool is_known(const std::vector<int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t dim) { return dim >= 0; });
}

std::map<std::string, int> index_by_name(const std::vector<ModelNode>& nodes) {
  std::map<std::string, int> index;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!index.emplace(nodes[i].name, static_cast<int>(i)).second) {
      throw GraphError("two nodes are named '" + nodes[i].name + "'");
    }
  }
  return index;
}

struct Edges {
  std::vector<Edge> data;    // by place in the model
  std::vector<int> sources;  // of all edges, control edges too
};

Edges resolve_edges(const ModelNode& node, const std::map<std::string, int>& index) {
  Edges edges;
  for (const auto& text : node.inputs) {
    if (text.empty()) {
      edges.data.emplace_back();
      continue;
    }
    const ModelEdge name = parse_edge(node, text);
    const auto source = index.find(name.node);
    if (source == index.end()) {
      throw GraphError(describe(node) + ": its input '" + text + "' names no node of the graph");
    }
    edges.sources.push_back(source->second);
    if (name.output >= 0) {
      edges.data.push_back({source->second, name.output});
    }
  }
  return edges;
}

// The order of execution: sources first, else as in the model.
std::vector<int> execution_order(const std::vector<ModelNode>& nodes, const std::vector<Edges>& edges) {
  std::vector<int> waiting_for(nodes.size(), 0);
  std::vector<std::vector<int>> users(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const int source : edges[i].sources) {
      users[source].push_back(static_cast<int>(i));
      ++waiting_for[i];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting_for[i] == 0) {
      ready.push(static_cast<int>(i));
    }
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int user : users[order.back()]) {
      if (--waiting_for[user] == 0) {
        ready.push(user);
      }
    }
  }
  if (order.size() != nodes.size()) {
    const auto stuck = std::find_if(waiting_for.begin(), waiting_for.end(), [](int count) { return count > 0; });
    throw GraphError(describe(nodes[stuck - waiting_for.begin()]) + " is part of a cycle or depends on one");
  }
  return order;
}

void require_no_negative(const ModelNode& node, const std::vector<int64_t>& shape) {
  if (!is_known(shape)) {
    throw GraphError(describe(node) + " has a negative dimension");
  }
}

StoredTensor constant_tensor(const ModelNode& node) {
  const auto* value = find_attribute<std::shared_ptr<const ConstTensor>>(node.attributes, "value");
  if (value == nullptr || *value == nullptr) {
    throw GraphError(describe(node) + " has no tensor in its attribute 'value'");
  }
  const ConstTensor& constant = **value;
  require_no_negative(node, constant.shape);
  // The numbers of elements are compared first: a wrong shape must not allocate.
  // torchair makes int4 without elements, for what is not computed.
  const bool is_no_int4 = constant.dtype == ge::DT_INT4 && constant.bytes.empty();
  const auto type = is_no_int4 ? at::kChar : scalar_type(constant.dtype);
  double elements = 1;
  for (const int64_t dim : constant.shape) {
    elements *= static_cast<double>(dim);
  }
  const double expected = elements * static_cast<double>(c10::elementSize(type));
  if (expected != static_cast<double>(constant.bytes.size())) {
    throw GraphError(describe(node) + " holds " + std::to_string(constant.bytes.size()) +
                     " bytes, which its shape and dtype do not need");
  }
  at::Tensor tensor = at::empty(constant.shape, at::TensorOptions().dtype(type));
  if (!constant.bytes.empty()) {
    std::memcpy(tensor.data_ptr(), constant.bytes.data(), constant.bytes.size());
  }
  return in_rows(tensor);
}

// A frozen parameter: the address of device memory that stays the same.
StoredTensor placeholder_tensor(const ModelNode& node) {
  const auto* address = find_attribute<int64_t>(node.attributes, "addr");
  const auto* dtype = find_attribute<ge::DataType>(node.attributes, "dtype");
  if (address == nullptr || dtype == nullptr) {
    throw GraphError(describe(node) + " lacks the attribute 'addr' or 'dtype'");
  }
  const auto shape = integers_or(node.attributes, "origin_shape", {});
  const auto storage_shape = integers_or(node.attributes, "storage_shape", shape);
  require_no_negative(node, storage_shape);
  const auto* format = find_attribute<int64_t>(node.attributes, "storage_format");
  StoredTensor tensor;
  try {
    tensor = stored_tensor(reinterpret_cast<void*>(*address), *dtype, shape,
                           format == nullptr ? ge::FORMAT_ND : static_cast<ge::Format>(*format), storage_shape);
  } catch (const c10::Error& error) {
    throw GraphError(describe(node) + ": " + error.what_without_backtrace());
  }
  const size_t bytes = tensor.tensor.nbytes();
  if (bytes != 0 && require_device_memory("attribute 'addr'", tensor.tensor.const_data_ptr(), bytes) != ACL_SUCCESS) {
    throw GraphError(describe(node) + ": " + aclGetRecentErrMsg());
  }
  return tensor;
}

Role role_of(const ModelNode& node) {
  if (node.type == "Data" || node.type == "RefData") {
    return Role::input;
  }
  if (node.type == "Const" || node.type == "Constant" || node.type == "ConstPlaceHolder") {
    return Role::constant;
  }
  return node.type == "NetOutput" ? Role::output : Role::compute;
}

// Finds what executes a node; says why not in `unknown`.
void resolve_type(Node& node, std::string& unknown) {
  const std::string& type = node.model->type;
  std::string reason;
  node.custom = find_custom_node(type, reason);
  if (node.custom == nullptr || !node.custom->prototype->of_package) {
    node.type = find_node_type(type);
    if (node.type != nullptr) node.custom = nullptr;
  }
  if (node.type == &kTorchOperatorNodes.front()) import_torch_operators();
  if (node.custom == nullptr && node.type == nullptr) {
    unknown += "\n  " + describe(*node.model) + ": " + reason;
  }
}

void name_inputs(Node& node) {
  const auto& descriptions = node.model->input_descriptions;
  node.input_names.resize(node.inputs.size());
  for (size_t i = 0; i < std::min(descriptions.size(), node.inputs.size()); ++i) {
    node.input_names[i] = descriptions[i].name;
  }
}

// Moves a built-in node's optional inputs to their places after the required ones.
void place_optional_inputs(Node& node) {
  const auto optional = node.type->optional_input_names();
  const auto& names = node.input_names;
  if (optional.empty() || std::find(names.begin(), names.end(), "") != names.end()) return;
  std::vector<Edge> edges, optional_edges(optional.size());
  std::vector<std::string> edge_names;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find(optional.begin(), optional.end(), names[i]);
    if (found != optional.end()) {
      optional_edges[found - optional.begin()] = node.inputs[i];
    } else {
      edges.push_back(node.inputs[i]);
      edge_names.push_back(names[i]);
    }
  }
  edges.insert(edges.end(), optional_edges.begin(), optional_edges.end());
  edge_names.insert(edge_names.end(), optional.begin(), optional.end());
  node.inputs = std::move(edges);
  node.input_names = std::move(edge_names);
}

// ge.exec.outputReuseInputMemIndexes: "input,output|input,output".
std::map<int, int> reused_inputs(const Options& options) {
  std::map<int, int> reused;
  const auto option = options.find("ge.exec.outputReuseInputMemIndexes");
  if (option == options.end()) {
    return reused;
  }
  const char* at = option->second.data();
  const char* end = at + option->second.size();
  while (at < end) {
    int input = 0, output = 0;
    auto first = std::from_chars(at, end, input);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',') {
      throw GraphError("option ge.exec.outputReuseInputMemIndexes: cannot read '" + option->second + "'");
    }
    auto second = std::from_chars(first.ptr + 1, end, output);
    if (second.ec != std::errc() || (second.ptr != end && *second.ptr != '|')) {
      throw GraphError("option ge.exec.outputReuseInputMemIndexes: cannot read '" + option->second + "'");
    }
    reused[output] = input;
    at = second.ptr == end ? end : second.ptr + 1;
  }
  return reused;
}

void find_last_uses(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs) {
  const auto count = static_cast<int>(nodes.size());
  for (int i = 0; i < count; ++i) {
    for (const Edge& edge : nodes[i].inputs) {
      if (!edge.absent()) {
        nodes[edge.node].last_reads[edge.output] = i;
      }
    }
  }
  for (const auto& output : outputs) {
    nodes[output.source.node].last_reads[output.source.output] = count;
  }
  for (int i = 0; i < count; ++i) {
    int last = i;
    for (const auto& [output, reader] : nodes[i].last_reads) {
      last = std::max(last, reader);
    }
    if (nodes[i].role == Role::compute && last < count) {
      nodes[last].last_uses.push_back(i);
    }
  }
}

// An operator package's node may write to an input without an output in its prototype. It relies on torchair to copy
// the written input.
void find_undeclared_writes(std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    if (node.custom == nullptr) {
      continue;
    }
    const auto& inputs = node.model->input_descriptions;
    const auto& outputs = node.model->output_descriptions;
    for (size_t i = 0; i < std::min(inputs.size(), node.inputs.size()); ++i) {
      const bool declared = std::any_of(outputs.begin(), outputs.end(),
                                        [&](const auto& output) { return output.name == inputs[i].name; });
      if (!declared && !node.inputs[i].absent()) {
        nodes[node.inputs[i].node].may_be_written = true;
      }
    }
  }
}

}  // namespace

CompiledGraph::CompiledGraph(std::shared_ptr<const Model> model, const Options& options) : model_(std::move(model)) {
  const auto index = index_by_name(model_->nodes);
  std::vector<Edges> edges;
  for (const auto& node : model_->nodes) {
    edges.push_back(resolve_edges(node, index));
  }
  const auto order = execution_order(model_->nodes, edges);
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
  }

  const auto reused = reused_inputs(options);
  std::string unknown;
  std::set<int64_t> input_indexes;
  for (const int i : order) {
    Node& node = nodes_.emplace_back();
    node.model = &model_->nodes[i];
    node.role = role_of(*node.model);
    node.inputs = edges[i].data;
    name_inputs(node);
    for (Edge& edge : node.inputs) {
      edge.node = edge.absent() ? edge.node : place[edge.node];
    }
    switch (node.role) {
      case Role::input: {
        node.inputs.clear();
        const auto* input_index = find_attribute<int64_t>(node.model->attributes, "index");
        if (input_index == nullptr || *input_index < 0 || !input_indexes.insert(*input_index).second) {
          throw GraphError(describe(*node.model) + " lacks its own attribute 'index'");
        }
        node.input_index = *input_index;
        for (const auto& description : node.model->output_descriptions) {
          is_static_ = is_static_ && is_known(description.shape);
        }
        break;
      }
      case Role::constant:
        node.constant =
            node.model->type == "ConstPlaceHolder" ? placeholder_tensor(*node.model) : constant_tensor(*node.model);
        break;
      case Role::compute:
        resolve_type(node, unknown);
        if (node.type != nullptr) place_optional_inputs(node);
        break;
      case Role::fused:  // later
        break;
      case Role::output:
        for (size_t k = 0; k < node.inputs.size(); ++k) {
          GraphOutput output{node.inputs[k], ge::DT_UNDEFINED, {-2}, -1};
          if (k < node.model->input_descriptions.size()) {
            output.dtype = node.model->input_descriptions[k].dtype;
            output.shape = node.model->input_descriptions[k].shape;
          }
          if (const auto found = reused.find(static_cast<int>(k)); found != reused.end()) {
            output.reused_input = found->second;
          }
          is_static_ = is_static_ && is_known(output.shape);
          outputs_.push_back(std::move(output));
        }
        break;
    }
  }
  if (!unknown.empty()) {
    throw GraphError("graph '" + name() + "' has nodes that cannot be executed:" + unknown);
  }
  input_count_ = input_indexes.size();
  if (!input_indexes.empty() && *input_indexes.rbegin() != static_cast<int64_t>(input_count_) - 1) {
    throw GraphError("graph '" + name() + "': the indexes of its Data nodes are not 0, 1, 2, ...");
  }
  for (const auto& output : outputs_) {
    if (output.source.absent() || output.reused_input >= static_cast<int>(input_count_)) {
      throw GraphError("graph '" + name() + "': an output has no source, or reuses an input that does not exist");
    }
  }
  fuse_addmm(nodes_, outputs_);
  write_views_in_place(nodes_, outputs_);
  find_last_uses(nodes_, outputs_);
  find_undeclared_writes(nodes_);
}

}  // namespace cann_cpu::graph
