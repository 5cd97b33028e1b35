// SPDX-License-Identifier: Apache-2.0
// Graphs, which are read and compiled, and models of single operators.
#include <c10/util/Exception.h>

#include "aclop/operator_models.h"
#include "cann_cpu/call.h"
#include "graph_engine/compiled_graph/graph.h"
#include "graph_engine/model/model.h"
#include "reader.h"

using namespace cann_cpu;

namespace {

bool is_graph(const std::string& contents) {
  try {
    const auto model = std::make_shared<const graph::Model>(graph::read_model(contents.data(), contents.size()));
    graph::CompiledGraph(model, {});
    return true;
  } catch (const graph::GraphError&) {
    return false;
  } catch (const c10::Error&) {  // of a constant whose sizes no tensor can have
    return false;
  }
}

bool is_operator(const std::string& contents) {
  try {
    read_operator_model(contents, "fuzzed");
    return true;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace

bool is_valid(const std::string& contents) { return is_operator(contents) || is_graph(contents); }
