// SPDX-License-Identifier: Apache-2.0
// The rules by which graphs infer shapes. A file is lines of numbers, the inputs' sizes or values, and the rule.
#include <sstream>

#include "cann_cpu/json.h"
#include "graph_engine/model/model.h"
#include "graph_engine/packages/inference_rule.h"
#include "reader.h"

using namespace cann_cpu;

bool is_valid(const std::string& contents) {
  std::istringstream lines(contents);
  std::vector<std::vector<int64_t>> inputs;
  std::string rule;
  while (lines.peek() != '{' && std::getline(lines, rule)) {
    std::istringstream words(rule);
    inputs.emplace_back();
    for (int64_t number; words >> number;) inputs.back().push_back(number);
  }
  std::getline(lines, rule, '\0');
  const auto input = [&](size_t i) { return i < inputs.size() ? std::optional(inputs[i]) : std::nullopt; };
  try {
    graph::apply_inference_rule(rule, {input, input});
    return true;
  } catch (const graph::GraphError&) {
    return false;
  } catch (const JsonError&) {
    return false;
  }
}
