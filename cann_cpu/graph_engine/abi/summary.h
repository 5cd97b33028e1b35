// SPDX-License-Identifier: Apache-2.0
// The implementation of ge::CompiledGraphSummary.
#pragma once

#include <memory>

#include "ge/ge_graph_compile_summary.h"
#include "graph_engine/compiled_graph/graph.h"

namespace ge {

class CompiledGraphSummary::SummaryData {
 public:
  std::shared_ptr<const cann_cpu::graph::CompiledGraph> graph;
};

}  // namespace ge
