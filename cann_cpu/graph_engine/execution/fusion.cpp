// SPDX-License-Identifier: Apache-2.0
// Finds and joins the nodes of an addmm; finds views that an operator can write to where they lie.
#include "fusion.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph_engine/model/attributes.h"
#include "graph_engine/nodes/aclnn.h"

namespace cann_cpu::graph {
namespace {

at::Tensor product(NodeCall& n) { return new_tensor({n.in(1).size(0), n.in(2).size(1)}, n.in(1).scalar_type()); }

// Inputs: bias, a, b, alpha and, unless it is 1, beta.
const NodeType kAddmm = {
    "Addmm", aclnn("Addmm", in(0), in(1), in(2), number(4, 1), number(3), out(product), plain(kKeepPrecision))};

bool is(const Node& node, const char* type) {
  return node.role == Role::compute && node.type != nullptr && node.model->type == type;
}

std::vector<int> count_uses(const std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs) {
  std::vector<int> uses(nodes.size());
  const auto count = [&](const Edge& edge) {
    if (!edge.absent()) {
      ++uses[edge.node];
    }
  };
  for (const Node& node : nodes) {
    for (const Edge& edge : node.inputs) {
      count(edge);
    }
  }
  for (const auto& output : outputs) {
    count(output.source);
  }
  return uses;
}

// Whether the node has this type and so many inputs, and asks for nothing that these attributes do not say.
bool is_plain(const Node& node, const char* type, size_t inputs, const Attributes& attributes) {
  const auto is_known = [&](const auto& attribute) {
    const auto known = attributes.find(attribute.first);
    return is_hint(attribute.first) || (known != attributes.end() && known->second == attribute.second);
  };
  const auto is_given = [](const Edge& edge) { return !edge.absent(); };
  const auto& given = node.model->attributes;
  return is(node, type) && node.inputs.size() >= inputs &&
         std::all_of(node.inputs.begin(), node.inputs.begin() + inputs, is_given) &&
         std::none_of(node.inputs.begin() + inputs, node.inputs.end(), is_given) &&
         std::all_of(given.begin(), given.end(), is_known);
}

constexpr size_t kSource = 4;  // the input of ViewCopy that it copies

bool same_value(const std::vector<Node>& nodes, const Edge& left, const Edge& right) {
  if (left.absent() || right.absent()) {
    return false;
  }
  const Node &a = nodes[left.node], &b = nodes[right.node];
  return (left.node == right.node && left.output == right.output) ||
         (a.role == Role::constant && b.role == Role::constant && a.constant.tensor.equal(b.constant.tensor));
}

// The places of the nodes that read a value. An output of the graph counts as the place after the last node.
std::vector<size_t> readers_of(const std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs,
                               const Edge& value) {
  const auto is_value = [&](const Edge& edge) { return edge.node == value.node && edge.output == value.output; };
  std::vector<size_t> readers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (std::any_of(nodes[i].inputs.begin(), nodes[i].inputs.end(), is_value)) {
      readers.push_back(i);
    }
  }
  if (std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& output) { return is_value(output.source); })) {
    readers.push_back(nodes.size());
  }
  return readers;
}

// The operator package's node and the ViewCopy that alone use what AsStrided gives, in this order.
std::optional<std::pair<size_t, size_t>> writer_and_copy_back(const std::vector<Node>& nodes,
                                                              const std::vector<GraphOutput>& outputs, size_t view) {
  const auto readers = readers_of(nodes, outputs, {static_cast<int>(view), 0});
  if (readers.size() != 2 || readers[1] == nodes.size() || nodes[readers[0]].custom == nullptr) {
    return {};
  }
  const Node &as_strided = nodes[view], &back = nodes[readers[1]];
  if (!is(back, "ViewCopy") || back.inputs.size() <= kSource || as_strided.inputs.size() != kSource ||
      back.inputs[kSource].node != static_cast<int>(view)) {
    return {};
  }
  for (size_t i = 0; i < kSource; ++i) {  // the tensor, sizes, strides and offset
    if (!same_value(nodes, as_strided.inputs[i], back.inputs[i])) {
      return {};
    }
  }
  return std::pair(readers[0], readers[1]);
}

}  // namespace

void write_views_in_place(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs) {
  for (size_t view = 0; view < nodes.size(); ++view) {
    const auto uses = is(nodes[view], "AsStrided") ? writer_and_copy_back(nodes, outputs, view) : std::nullopt;
    if (!uses) {
      continue;
    }
    // Other views of the tensor may be taken, and copied back, for the same operator, whose inputs do not overlap.
    const auto is_harmless = [&](size_t reader) {
      if (reader <= view || reader >= uses->second) {
        return true;
      }
      const Node& node = nodes[reader];
      const bool is_back = is(node, "ViewCopy") && node.inputs.size() > kSource && !node.inputs[kSource].absent() &&
                           same_value(nodes, node.inputs[0], nodes[view].inputs[0]);
      if (!is_back && !is(node, "AsStrided")) {
        return false;
      }
      const auto others = writer_and_copy_back(nodes, outputs, is_back ? node.inputs[kSource].node : reader);
      return others && others->first == uses->first;
    };
    const auto readers = readers_of(nodes, outputs, nodes[view].inputs[0]);
    nodes[view].in_place = std::all_of(readers.begin(), readers.end(), is_harmless);
  }
}

void fuse_addmm(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs) {
  const auto uses = count_uses(nodes, outputs);
  const auto used_once = [&](const Edge& edge) { return !edge.absent() && uses[edge.node] == 1; };
  for (Node& sum : nodes) {
    if (!(is(sum, "Add") || is(sum, "AxpyV2")) || sum.inputs.size() < 2 || !used_once(sum.inputs[0])) {
      continue;
    }
    Node& scaled = nodes[sum.inputs[0].node];
    if (!is_plain(scaled, "Mul", 2, {}) || !used_once(scaled.inputs[0]) ||
        nodes[scaled.inputs[1].node].role != Role::constant) {
      continue;
    }
    Node& product = nodes[scaled.inputs[0].node];
    if (!is_plain(product, "MatMulV2", 2,
                  {{"transpose_x1", false}, {"transpose_x2", false}, {"offset_x", int64_t{0}}})) {
      continue;
    }
    std::vector<Edge> inputs = {sum.inputs[1], product.inputs[0], product.inputs[1], scaled.inputs[1]};
    inputs.insert(inputs.end(), sum.inputs.begin() + 2, sum.inputs.end());
    sum.inputs = std::move(inputs);
    sum.type = &kAddmm;
    scaled.role = product.role = Role::fused;
    scaled.inputs.clear();
    product.inputs.clear();
  }
}

}  // namespace cann_cpu::graph
