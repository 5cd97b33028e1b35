// SPDX-License-Identifier: Apache-2.0
// Runs a compiled graph once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "acl/acl_base.h"
#include "graph_engine/compiled_graph/graph.h"

namespace cann_cpu::graph {

// The graph's outputs for these inputs. Those that replace an input may lie in its memory, if that is their target;
// others are not yet in anybody's memory, and may be views of the inputs. Called from a task of the stream. Throws
// GraphError, which names the node.
std::vector<at::Tensor> run_nodes(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs,
                                  const std::vector<at::Tensor>& targets, aclrtStream stream);

// Writes each result to its target, whatever memory they share: all reads are done before the first write. A target
// that is not defined takes nothing, and its result stays what it is; one that holds its result already is left alone.
// Throws GraphError when shapes or dtypes differ.
void write_outputs(std::vector<at::Tensor>& results, const std::vector<at::Tensor>& targets);

}  // namespace cann_cpu::graph
