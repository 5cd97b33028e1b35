// SPDX-License-Identifier: Apache-2.0
// Operators that Python has registered with PyTorch.
#pragma once

#include "node_types.h"

namespace cann_cpu::graph {

extern const NodeTable kTorchOperatorNodes;

// Before a graph that has such a node runs: the functions of Python that call operators. Throws where there is none.
void import_torch_operators();

}  // namespace cann_cpu::graph
