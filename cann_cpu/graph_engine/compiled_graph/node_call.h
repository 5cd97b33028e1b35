// SPDX-License-Identifier: Apache-2.0
// One execution of a node, as its function sees it: the inputs, the attributes, and the places of the outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl_base.h"
#include "graph.h"
#include "graph_engine/model/attributes.h"
#include "values.h"

namespace cann_cpu::graph {

// The number in a tensor of one element. A float is the number that its shortest decimal names, as for attributes.
inline at::Scalar number_in(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? at::Scalar(widened(tensor.item<float>())) : tensor.item();
}

class NodeCall {
 public:
  NodeCall(const Node& node, Values& values, aclrtStream stream)
      : node_(node), values_(values), stream_(stream), read_inputs_(node.inputs.size()) {}

  // Rejects a node that was given an input or an attribute that nothing has read: what it asks for was not done.
  void check_all_read() const;

  const ModelNode& node() const { return *node_.model; }
  aclrtStream stream() const { return stream_; }
  bool in_place() const { return node_.in_place; }

  size_t input_count() const { return node_.inputs.size(); }
  const std::string& input_name(size_t i) const { return node_.input_names.at(i); }
  bool has(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].absent(); }
  const at::Tensor& in(size_t i) const;  // in ND
  StoredTensor stored(size_t i) const;   // as it lies in memory, contiguous
  std::vector<int64_t> shape(size_t i) const;
  at::ScalarType dtype(size_t i) const { return values_.dtype(source(i)); }
  bool is_constant(size_t i) const { return values_.is_constant(source(i)); }
  // Inputs i, i+1, ..., count of them, or up to the last one.
  std::vector<at::Tensor> in_from(size_t i) const;
  std::vector<at::Tensor> in_range(size_t i, size_t count) const;
  // The elements of an integer input.
  std::vector<int64_t> integers(size_t i) const;
  int64_t integer(size_t i) const;
  at::Scalar number(size_t i) const { return number_in(in(i)); }
  // Input i as a separate value, row-major.
  at::Tensor contiguous(size_t i);
  // Input i to write to: row-major, and later readers of the same value see what was written.
  at::Tensor& writable(size_t i) { return values_.writable(source(i), node_); }
  // The same, but a graph's input is written through to the caller's memory: for the built-in operators that torchair
  // lets write to an input without a copy (npu_scatter_nd_update_ on a view of a cache, for one).
  at::Tensor& referenced(size_t i);

  // An attribute, or `fallback` when it is absent; without one it is required.
  int64_t integer(const std::string& name, std::optional<int64_t> fallback = {}) const;
  double real(const std::string& name, std::optional<double> fallback = {}) const;
  // The fallback also stands for DT_UNDEFINED.
  at::ScalarType dtype(const std::string& name, std::optional<at::ScalarType> fallback = {}) const;
  bool flag(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> integers(const std::string& name, std::vector<int64_t> fallback) const;
  // The place of the attribute's text in `all`, whose first is the default.
  int64_t choice(const std::string& name, const std::vector<std::string>& all) const;
  const Attribute* attribute(const std::string& name) const;

  // What the node does not implement: an attribute must have one of these values, where it is given at all.
  void one_of(const std::string& name, const std::vector<Attribute>& values) const;
  void only(const std::string& name, const Attribute& value) const { one_of(name, {value}); }
  // What says nothing that the inputs do not.
  void ignore(const std::string& name) const { attribute(name); }
  void ignore(size_t i) const;

 private:
  const Edge& source(size_t i) const;
  template <class T>
  const T* find(const std::string& name) const;

  const Node& node_;
  Values& values_;
  aclrtStream stream_;
  mutable std::vector<bool> read_inputs_;
  mutable std::vector<const Attribute*> read_attributes_;
};

// A node's outputs, in order: made from one tensor or a list of them.
struct Outputs : std::vector<at::Tensor> {
  Outputs(at::Tensor tensor) { push_back(std::move(tensor)); }
  Outputs(std::vector<at::Tensor> tensors) : std::vector<at::Tensor>(std::move(tensors)) {}
};

// Computes a node's outputs from its inputs and attributes; throws to reject.
using NodeFunction = std::function<Outputs(NodeCall&)>;

}  // namespace cann_cpu::graph
