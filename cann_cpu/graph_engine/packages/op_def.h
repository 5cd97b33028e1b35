// SPDX-License-Identifier: Apache-2.0
// A custom node's outputs as the functions of its OpDef infer them: SetInferShape and SetInferDataType.
#pragma once

#include <vector>

#include "graph_engine/compiled_graph/node_call.h"
#include "inference_rule.h"
#include "metadef/definition.h"

namespace cann_cpu::graph {

// Replaces the shapes and dtypes that the OpDef has functions for. `groups`: the node's inputs that belong to each
// input of the OpDef. The exception names the function that failed and its arguments.
void apply_op_def(const ops::Definition& definition, const NodeCall& call,
                  const std::vector<std::vector<size_t>>& groups, std::vector<InferredOutput>& outputs);

}  // namespace cann_cpu::graph
