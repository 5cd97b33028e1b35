// SPDX-License-Identifier: Apache-2.0
// Looks node types up in the table.
#include "node_types.h"

#include <iterator>
#include <map>
#include <sstream>

#include "cann_cpu/export.h"
#include "torch_operator.h"

namespace cann_cpu::graph {

namespace {

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

const std::map<std::string, const NodeType*>& rows_by_type() {
  static const auto table = [] {
    std::map<std::string, const NodeType*> rows;
    for (const NodeTable* part : {&kPointwiseNodes, &kComparisonNodes, &kReductionNodes, &kLinearAlgebraNodes,
                                  &kNormalizationNodes, &kIndexingNodes, &kViewNodes, &kCreationNodes, &kRandomNodes,
                                  &kActivationNodes, &kForeachNodes, &kVisionNodes, &kAttentionNodes, &kExpertNodes,
                                  &kCollectiveNodes, &kQuantizationNodes, &kTorchOperatorNodes}) {
      for (const NodeType& row : *part) {
        rows.emplace(row.type, &row);
      }
    }
    return rows;
  }();
  return table;
}

}  // namespace

std::vector<std::string> NodeType::optional_input_names() const { return words(optional_inputs); }

Prototype NodeType::prototype() const {
  Prototype prototype;
  prototype.type = type;
  for (const auto& name : optional_input_names()) prototype.inputs.push_back({name, Arity::optional});
  for (const auto& name : words(attributes)) prototype.attributes.push_back({name, "", false, {}});
  for (const auto& name : words(outputs)) prototype.outputs.push_back({name, Arity::required});
  return prototype;
}

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
