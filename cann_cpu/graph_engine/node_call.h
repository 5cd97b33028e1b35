// What a node's function sees of one execution: the inputs, the attributes, and where the outputs go.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "acl/acl_base.h"
#include "attributes.h"
#include "graph.h"

namespace cann_cpu::graph {

// The values of a graph's nodes while it runs.
class Values {
 public:
  Values(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs);

  at::Tensor& at(const Edge& edge);  // in ND
  // The value as it lies in memory, contiguous: an input or a constant may be in FRACTAL_NZ.
  StoredTensor stored(const Edge& edge);
  bool is_in_blocks(const Edge& edge) const { return in_blocks_.count(edge.node) != 0; }
  std::vector<int64_t> shape(const Edge& edge);
  void set(int node, std::vector<at::Tensor> outputs) { outputs_[node] = std::move(outputs); }
  void release(int node) { outputs_[node].clear(); }
  // Whether the tensor lies in memory that is not the execution's own: an input's or a constant's, an input's.
  bool is_external(const at::Tensor& tensor) const;
  bool is_input(const at::Tensor& tensor) const;

 private:
  const CompiledGraph& graph_;
  std::vector<std::vector<at::Tensor>> outputs_;
  std::map<int, StoredTensor> in_blocks_;  // by node; its output is copied to ND where a reader needs that
  std::vector<const void*> input_storages_;
  std::vector<const void*> constant_storages_;
};

class NodeCall {
 public:
  NodeCall(const Node& node, Values& values, aclrtStream stream) : node_(node), values_(values), stream_(stream) {}

  const ModelNode& node() const { return *node_.model; }
  aclrtStream stream() const { return stream_; }

  size_t input_count() const { return node_.inputs.size(); }
  bool has(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].absent(); }
  const at::Tensor& in(size_t i) const;  // in ND
  StoredTensor stored(size_t i) const;   // as it lies in memory, contiguous
  std::vector<int64_t> shape(size_t i) const;
  // Inputs i, i+1, ..., count of them, or up to the last one.
  std::vector<at::Tensor> in_from(size_t i) const;
  std::vector<at::Tensor> in_range(size_t i, size_t count) const;
  // The elements of an integer input.
  std::vector<int64_t> integers(size_t i) const;
  int64_t integer(size_t i) const;
  // Input i to write to: row-major memory of the execution's own, which other readers of the same value see too.
  at::Tensor& writable(size_t i);
  // The same, but a graph's input is written through to the caller's memory: for the built-in operators that torchair
  // lets write to an input without a copy (npu_scatter_nd_update_ on a view of a cache, for one).
  at::Tensor& referenced(size_t i);

  // An attribute, or `fallback` when it is absent.
  int64_t integer(const std::string& name, int64_t fallback) const;
  double real(const std::string& name, double fallback) const;
  bool flag(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> integers(const std::string& name, std::vector<int64_t> fallback) const;
  at::ScalarType dtype(const std::string& name, at::ScalarType fallback) const;
  // A required attribute.
  int64_t integer(const std::string& name) const;
  at::ScalarType dtype(const std::string& name) const;

 private:
  const Edge& source(size_t i) const;
  at::Tensor& written(size_t i);

  const Node& node_;
  Values& values_;
  aclrtStream stream_;
};

}  // namespace cann_cpu::graph
