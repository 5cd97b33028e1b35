// SPDX-License-Identifier: Apache-2.0
// Looks node types up in the table.
#include "node_types.h"

#include <sstream>
#include <unordered_map>

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

const NodeType* find_node_type(const std::string& type) {
  static const auto table = [] {
    std::unordered_map<std::string, const NodeType*> rows;
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
  const auto found = table.find(type);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace cann_cpu::graph
