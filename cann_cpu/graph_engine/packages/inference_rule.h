// SPDX-License-Identifier: Apache-2.0
// The attribute _inference_rule of a custom node: its outputs' shapes as expressions of its inputs' dimensions and
// values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/types.h"

namespace cann_cpu::graph {

// The value of an arithmetic expression over symbols, computed exactly. Operators + - * / // % **, unary - and +, and
// the functions Add, Mul, Div, Floor, Ceil, Mod, Pow, Max, Min, Abs. The result must be an integer.
// Throws GraphError.
int64_t evaluate_expression(const std::string& expression, const std::map<std::string, int64_t>& symbols);

struct InferredOutput {
  std::vector<int64_t> shape;
  ge::DataType dtype;
};

// The inputs of a node, by their position: nothing for an absent one.
struct RuleInputs {
  std::function<std::optional<std::vector<int64_t>>(size_t)> shape;
  std::function<std::optional<std::vector<int64_t>>(size_t)> values;  // of an integer input, flattened
};

// Applies the rule's JSON text. Throws GraphError.
std::vector<InferredOutput> apply_inference_rule(const std::string& rule, const RuleInputs& inputs);

}  // namespace cann_cpu::graph
