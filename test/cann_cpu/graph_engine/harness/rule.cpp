// SPDX-License-Identifier: Apache-2.0
// The evaluator of inference rules, callable from Python.
#include <cstring>

#include "graph_engine/model/model.h"
#include "graph_engine/packages/inference_rule.h"

using namespace cann_cpu::graph;

namespace {

int fail(const std::exception& error, char* text, size_t capacity) {
  std::strncpy(text, error.what(), capacity - 1);
  return -1;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int evaluate(const char* expression, const char* const* names,
                                                               const int64_t* values, size_t count, int64_t* result,
                                                               char* text, size_t capacity) {
  try {
    std::map<std::string, int64_t> symbols;
    for (size_t i = 0; i < count; ++i) {
      symbols[names[i]] = values[i];
    }
    *result = evaluate_expression(expression, symbols);
    return 0;
  } catch (const std::exception& error) {
    return fail(error, text, capacity);
  }
}

// Applies the rule to a node with one input, and returns the first output's rank, dimensions and dtype.
extern "C" __attribute__((visibility("default"))) int apply(const char* rule, const int64_t* numbers, size_t count,
                                                            int64_t* output, char* text, size_t capacity) {
  try {
    const auto input = [&](size_t i) {
      return i == 0 ? std::optional(std::vector<int64_t>(numbers, numbers + count)) : std::nullopt;
    };
    const auto inferred = apply_inference_rule(rule, {input, input});
    output[0] = static_cast<int64_t>(inferred.at(0).dtype);
    output[1] = static_cast<int64_t>(inferred[0].shape.size());
    std::copy(inferred[0].shape.begin(), inferred[0].shape.end(), output + 2);
    return 0;
  } catch (const std::exception& error) {
    return fail(error, text, capacity);
  }
}
