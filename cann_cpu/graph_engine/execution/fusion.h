// SPDX-License-Identifier: Apache-2.0
// Joins nodes that eager computes with one function, so that both round alike.
#pragma once

#include <vector>

#include "execution/graph.h"

namespace cann_cpu::graph {

// torchair writes addmm(bias, a, b, beta, alpha) as MatMulV2(a, b) * alpha + bias * beta. The last of these nodes takes
// the others in, when nobody else uses their values.
void fuse_addmm(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs);

}  // namespace cann_cpu::graph
