// SPDX-License-Identifier: Apache-2.0
// Looks node types up in the table.
#include "node_types.h"

#include <map>
#include <sstream>

#include "cann_cpu/export.h"

namespace cann_cpu::graph {

Prototype NodeType::prototype() const {
  Prototype prototype;
  prototype.type = type;
  std::string name;
  for (std::istringstream names(optional_inputs); names >> name;) {
    prototype.inputs.push_back({name, Arity::optional});
  }
  for (std::istringstream names(attributes); names >> name;) {
    prototype.attributes.push_back({name, "", false, {}});
  }
  return prototype;
}

namespace {

const std::map<std::string, const NodeType*>& rows_by_type() {
  static const auto table = [] {
    std::map<std::string, const NodeType*> rows;
    for (const NodeTable* part :
         {&kPointwiseNodes, &kComparisonNodes, &kReductionNodes, &kLinearAlgebraNodes, &kNormalizationNodes,
          &kIndexingNodes, &kViewNodes, &kCreationNodes, &kRandomNodes, &kActivationNodes, &kForeachNodes,
          &kVisionNodes, &kAttentionNodes, &kCollectiveNodes}) {
      for (const NodeType& row : *part) {
        rows.emplace(row.type, &row);
      }
    }
    return rows;
  }();
  return table;
}

}  // namespace

const NodeType* find_node_type(const std::string& type) {
  const auto found = rows_by_type().find(type);
  return found == rows_by_type().end() ? nullptr : found->second;
}

}  // namespace cann_cpu::graph

// The types of all rows, a line each: for `python -m cann_cpu coverage`.
extern "C" CANN_EXPORT const char* cann_cpu_node_types() {
  static const std::string types = [] {
    std::string lines;
    for (const auto& row : cann_cpu::graph::rows_by_type()) lines += row.first + "\n";
    return lines;
  }();
  return types.c_str();
}
