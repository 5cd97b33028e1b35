// SPDX-License-Identifier: Apache-2.0
// Runs a compiled graph node by node.
#include "execution.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "cann_cpu/profiling.h"
#include "cann_cpu/scalar_types.h"
#include "graph_engine/compiled_graph/node_call.h"
#include "graph_engine/model/dtypes.h"
#include "graph_engine/nodes/node_types.h"
#include "graph_engine/packages/custom_node.h"

namespace cann_cpu::graph {
namespace {

// The inputs of a node for its row in a profile.
TaskTensors inputs_of(const Node& node, Values& values) {
  TaskTensors operands;
  for (const Edge& input : node.inputs) {
    if (!input.absent())
      operands.push_back({acl_dtype(values.dtype(input)), ACL_FORMAT_ND, values.shape(input), false});
  }
  return operands;
}

Outputs run_node(const Node& node, Values& values, aclrtStream stream) {
  try {
    NodeCall call(node, values, stream);
    std::optional<ProfiledNode> row;
    TaskTensors operands;
    if (is_profiling()) {
      row.emplace(node.model->name, node.model->type);
      operands = inputs_of(node, values);
    }
    Outputs outputs = node.custom != nullptr ? node.custom->run(call) : node.type->run(call);
    call.check_all_read();
    if (row) {
      for (const at::Tensor& output : outputs) {
        if (!output.defined()) continue;
        operands.push_back({acl_dtype(output.scalar_type()), ACL_FORMAT_ND, output.sizes().vec(), true});
      }
      row->set_operands(std::move(operands));
    }
    return outputs;
  } catch (const c10::Error& error) {
    throw GraphError(describe(*node.model) + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw GraphError(describe(*node.model) + ": " + error.what());
  }
}

void check_target(size_t output, const at::Tensor& result, const at::Tensor& target) {
  if (result.sizes() != target.sizes() || result.scalar_type() != target.scalar_type()) {
    std::ostringstream text;
    text << "output " << output << " is " << dtype_name(ge_dtype(result.scalar_type())) << result.sizes()
         << ", the caller's memory is for " << dtype_name(ge_dtype(target.scalar_type())) << target.sizes();
    throw GraphError(text.str());
  }
}

}  // namespace

std::vector<at::Tensor> run_nodes(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs,
                                  const std::vector<at::Tensor>& targets, aclrtStream stream) {
  const c10::InferenceMode no_autograd;
  Values values(graph, inputs, targets);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.role == Role::compute) {
      values.set(static_cast<int>(i), run_node(node, values, stream));
    }
    for (const int unused : node.last_uses) {
      values.release(unused);
    }
  }
  std::vector<at::Tensor> results;
  for (const auto& output : graph.outputs()) {
    results.push_back(values.at(output.source));
  }
  return results;
}

void write_outputs(std::vector<at::Tensor>& results, const std::vector<at::Tensor>& targets) {
  const c10::InferenceMode no_autograd;
  std::vector<size_t> writes;
  for (size_t i = 0; i < results.size(); ++i) {
    if (targets[i].defined()) {
      check_target(i, results[i], targets[i]);
      if (!is_same_memory(results[i], targets[i])) {
        writes.push_back(i);
      }
    }
  }
  for (at::Tensor& result : results) {
    if (std::any_of(writes.begin(), writes.end(), [&](size_t k) { return overlap(result, targets[k]); })) {
      result = result.clone();
    }
  }
  for (const size_t i : writes) {
    targets[i].copy_(results[i]);
  }
}

}  // namespace cann_cpu::graph
