// SPDX-License-Identifier: Apache-2.0
// The value of a node's or prototype's attribute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "graph/types.h"

namespace cann_cpu::graph {

// A tensor written down in the graph: row-major bytes.
struct ConstTensor {
  ge::DataType dtype = ge::DT_UNDEFINED;
  std::vector<int64_t> shape;
  std::string bytes;
};

using Attribute =
    std::variant<std::monostate, int64_t, float, bool, std::string, ge::DataType, std::shared_ptr<const ConstTensor>,
                 std::vector<int64_t>, std::vector<float>, std::vector<bool>, std::vector<std::string>,
                 std::vector<ge::DataType>, std::vector<std::vector<int64_t>>, std::vector<std::vector<float>>>;

}  // namespace cann_cpu::graph
