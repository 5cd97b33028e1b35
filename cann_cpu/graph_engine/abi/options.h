// SPDX-License-Identifier: Apache-2.0
// The options of the engine, of sessions and of graphs.
#pragma once

#include <optional>

#include "cann_cpu/core_limits.h"
#include "graph/ascend_string.h"
#include "graph_engine/compiled_graph/graph.h"

namespace cann_cpu::graph {

// Throws GraphError that names an option which is unknown, or asks for what is not there.
Options checked_options(const std::map<ge::AscendString, ge::AscendString>& options);

// What the option ge.aicoreNum leaves of the cores, if it is given.
std::optional<Cores> cores_of(const Options& options);

}  // namespace cann_cpu::graph
