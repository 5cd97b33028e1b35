// SPDX-License-Identifier: Apache-2.0
// Keeps the values of a graph's nodes apart while they share memory.
#include "values.h"

#include <algorithm>

namespace cann_cpu::graph {
namespace {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

struct Bytes {
  const char* begin;
  const char* end;
};

Bytes extent(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) {
    return {begin, begin};
  }
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

// Whether an output goes to the input's memory, which no other input, constant or output shares: overwriting it early
// affects no other value.
bool is_overwritten(size_t input, const CompiledGraph& graph, const std::vector<StoredTensor>& inputs,
                    const std::vector<at::Tensor>& targets) {
  const at::Tensor& memory = inputs[input].tensor;
  const auto is_disjoint = [&](const at::Tensor& other) { return !other.defined() || !overlap(other, memory); };
  bool overwritten = false;
  for (size_t k = 0; k < targets.size(); ++k) {
    if (graph.outputs()[k].reused_input == static_cast<int>(input) && targets[k].defined() && !overwritten &&
        is_same_memory(targets[k], memory)) {
      overwritten = true;
    } else if (!is_disjoint(targets[k])) {
      return false;
    }
  }
  for (size_t i = 0; overwritten && i < inputs.size(); ++i) {
    overwritten = i == input || is_disjoint(inputs[i].tensor);
  }
  return overwritten && std::all_of(graph.nodes().begin(), graph.nodes().end(),
                                    [&](const Node& node) { return is_disjoint(node.constant.tensor); });
}

}  // namespace

bool overlap(const at::Tensor& left, const at::Tensor& right) {
  const Bytes a = extent(left), b = extent(right);
  return a.begin < b.end && b.begin < a.end;
}

bool is_same_memory(const at::Tensor& left, const at::Tensor& right) {
  return left.const_data_ptr() == right.const_data_ptr() && left.scalar_type() == right.scalar_type() &&
         left.sizes() == right.sizes() && left.strides() == right.strides();
}

Values::Values(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs,
               const std::vector<at::Tensor>& targets)
    : graph_(graph), outputs_(graph.nodes().size()) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto place = static_cast<int>(i);
    if (node.role == Role::constant) {
      borrow(place, node.constant, Owner::graph);
    } else if (node.role == Role::input) {
      const auto input = static_cast<size_t>(node.input_index);
      borrow(place, inputs[input], is_overwritten(input, graph, inputs, targets) ? Owner::reused_input : Owner::caller);
    }
  }
}

void Values::borrow(int node, const StoredTensor& stored, Owner owner) {
  if (stored.format != ACL_FORMAT_ND) {
    in_blocks_.emplace(node, stored);
    return;
  }
  set(node, {stored.tensor});
  external_.push_back({storage_of(stored.tensor), owner});
}

Values::Value& Values::value(const Edge& edge) {
  auto& outputs = outputs_[edge.node];
  if (is_in_blocks(edge) && outputs.empty()) {
    outputs.push_back({in_nd(in_blocks_.at(edge.node)), variables_++});
  }
  if (edge.output >= static_cast<int>(outputs.size())) {
    throw GraphError(describe(*graph_.nodes()[edge.node].model) + " has no output " + std::to_string(edge.output));
  }
  return outputs[edge.output];
}

StoredTensor Values::stored(const Edge& edge) {
  return is_in_blocks(edge) ? in_blocks_.at(edge.node) : in_rows(in_rows_or_place(edge));
}

std::vector<int64_t> Values::shape(const Edge& edge) {
  return is_in_blocks(edge) ? in_blocks_.at(edge.node).shape : at(edge).sizes().vec();
}

at::ScalarType Values::dtype(const Edge& edge) {
  return (is_in_blocks(edge) ? in_blocks_.at(edge.node).tensor : at(edge)).scalar_type();
}

Owner Values::owner_of(const at::Tensor& tensor) const {
  const void* storage = storage_of(tensor);
  const auto found = std::find_if(external_.begin(), external_.end(),
                                  [&](const External& external) { return external.storage == storage; });
  return found == external_.end() ? Owner::execution : found->owner;
}

at::Tensor Values::contiguous(const at::Tensor& tensor) const {
  const Owner owner = owner_of(tensor);
  return owner == Owner::execution || owner == Owner::reused_input ? tensor.contiguous()
                                                                   : tensor.clone(at::MemoryFormat::Contiguous);
}

// Whether the present contents of the value's memory are needed only as this value.
bool Values::may_overwrite(const Value& value, const Node& writer) const {
  const Owner owner = owner_of(value.tensor);
  if (owner == Owner::caller || owner == Owner::graph) {
    return false;
  }
  const void* storage = storage_of(value.tensor);
  const auto now = static_cast<int>(&writer - graph_.nodes().data());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    for (const auto& [output, last_reader] : graph_.nodes()[i].last_reads) {
      if (last_reader < now || output >= static_cast<int>(outputs_[i].size())) {
        continue;
      }
      const Value& other = outputs_[i][output];
      if (other.variable != value.variable && storage_of(other.tensor) == storage) {
        return false;
      }
    }
  }
  return true;
}

// Row-major, but for what is written where it lies.
at::Tensor Values::in_rows_or_place(const Edge& edge) {
  const at::Tensor& tensor = at(edge);
  return graph_.nodes()[edge.node].in_place ? tensor : tensor.contiguous();
}

at::Tensor& Values::writable(const Edge& edge, const Node& writer) {
  if (is_in_blocks(edge)) {
    throw GraphError("a tensor that is written must be in format ND, but " +
                     describe(*graph_.nodes()[edge.node].model) + " is in FRACTAL_NZ");
  }
  Value& written = value(edge);
  written.tensor =
      may_overwrite(written, writer) ? in_rows_or_place(edge) : written.tensor.clone(at::MemoryFormat::Contiguous);
  written_.push_back(edge);
  return written.tensor;
}

void Values::set(int node, std::vector<at::Tensor> outputs) {
  for (at::Tensor& output : outputs) {
    int variable = variables_++;
    for (const Edge& edge : written_) {
      const bool stands_for_it = at(edge).is_same(output) || graph_.nodes()[node].in_place;
      variable = stands_for_it ? value(edge).variable : variable;
    }
    outputs_[node].push_back({std::move(output), variable});
  }
  written_.clear();
}

}  // namespace cann_cpu::graph
