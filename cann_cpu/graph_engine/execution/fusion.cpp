// SPDX-License-Identifier: Apache-2.0
// Finds and joins the nodes of an addmm.
#include "execution/fusion.h"

#include <algorithm>

#include "model/attributes.h"
#include "nodes/aclnn.h"

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

}  // namespace

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
