// SPDX-License-Identifier: Apache-2.0
// Joins nodes that eager computes with one function, so that both round alike, and spares copies that are copied back.
#pragma once

#include <vector>

#include "graph_engine/compiled_graph/graph.h"

namespace cann_cpu::graph {

// torchair writes addmm(bias, a, b, beta, alpha) as MatMulV2(a, b) * alpha + bias * beta. The last of these nodes takes
// the others in, if no other node uses their values.
void fuse_addmm(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs);

// torchair lets an operator write to a view by AsStrided, which copies it, and ViewCopy, which copies it back. Where
// only an operator package's node uses the copy, and no node reads the tensor meanwhile, the operator works on the view
// itself.
void write_views_in_place(std::vector<Node>& nodes, const std::vector<GraphOutput>& outputs);

}  // namespace cann_cpu::graph
