// SPDX-License-Identifier: Apache-2.0
// The values of a graph's nodes while it runs, and which of their memory may be written to.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "cann_cpu/stored_tensor.h"
#include "graph.h"

namespace cann_cpu::graph {

// Whether the addresses that the tensors' elements lie in, whatever their strides, overlap.
bool overlap(const at::Tensor& left, const at::Tensor& right);
// Whether both name the same elements in the same memory.
bool is_same_memory(const at::Tensor& left, const at::Tensor& right);

// Whose memory a value lies in.
enum class Owner {
  execution,
  caller,        // an input
  reused_input,  // an input whose memory one of the graph's outputs goes to, and that nothing else shares
  graph,         // a constant
};

// Nodes that only move data give views of their inputs, so values share memory. It is copied when one of them is to be
// written to while another is still needed: a node that works in place on the copy of an input, and whose result the
// graph writes back to that input, works on the caller's memory itself.
class Values {
 public:
  // `targets`: where the graph's outputs go, undefined for memory that is yet to be allocated.
  Values(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs, const std::vector<at::Tensor>& targets);

  at::Tensor& at(const Edge& edge) { return value(edge).tensor; }  // in ND
  // The value in its own format: an input or a constant may be in FRACTAL_NZ. It is contiguous unless it is written in
  // place.
  StoredTensor stored(const Edge& edge);
  std::vector<int64_t> shape(const Edge& edge);
  at::ScalarType dtype(const Edge& edge);
  bool is_constant(const Edge& edge) const { return graph_.nodes()[edge.node].role == Role::constant; }
  Owner owner_of(const at::Tensor& tensor) const;
  // The same elements, row-major, as another value. It shares the memory if writable() can distinguish the two.
  at::Tensor contiguous(const at::Tensor& tensor) const;
  // The value, row-major unless it is written in place, for `writer` to write to. Later readers of this value see
  // the written elements, but readers of other values do not.
  at::Tensor& writable(const Edge& edge, const Node& writer);
  void set(int node, std::vector<at::Tensor> outputs);
  void release(int node) { outputs_[node].clear(); }

 private:
  struct Value {
    at::Tensor tensor;
    int variable;  // the same for an input that was written to and the output that stands for it
  };
  struct External {
    const void* storage;
    Owner owner;
  };

  void borrow(int node, const StoredTensor& stored, Owner owner);
  bool is_in_blocks(const Edge& edge) const { return in_blocks_.count(edge.node) != 0; }
  Value& value(const Edge& edge);
  bool may_overwrite(const Value& value, const Node& writer) const;
  at::Tensor in_rows_or_place(const Edge& edge);

  const CompiledGraph& graph_;
  std::vector<std::vector<Value>> outputs_;
  std::map<int, StoredTensor> in_blocks_;  // by node; its output is copied to ND where a reader needs that
  std::vector<External> external_;
  std::vector<Edge> written_;  // by the node that runs now
  int variables_ = 0;
};

}  // namespace cann_cpu::graph
