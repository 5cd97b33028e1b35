// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic and selection.
#include "table.h"

#include <ATen/ops/eq_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/isfinite_ops.h>
#include <ATen/ops/isinf_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/logical_xor_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/where.h>

namespace cann_cpu::graph {

using namespace at::_ops;

const NodeTable kComparisonNodes = {
    {"Equal", binary<eq_Tensor::call>},
    {"NotEqual", binary<ne_Tensor::call>},
    {"Less", binary<lt_Tensor::call>},
    {"LessEqual", binary<le_Tensor::call>},
    {"Greater", binary<gt_Tensor::call>},
    {"GreaterEqual", binary<ge_Tensor::call>},
    {"LogicalAnd", binary<logical_and::call>},
    {"LogicalOr", binary<logical_or::call>},
    {"LogicalXor", binary<logical_xor::call>},
    {"LogicalNot", unary<logical_not::call>},
    {"IsInf", unary<isinf::call>},
    {"IsNan", unary<isnan::call>},
    {"IsFinite", unary<isfinite::call>},
    {"SelectV2", [](NodeCall& n) -> Outputs { return at::where(n.in(0).to(at::kBool), n.in(1), n.in(2)); }},
    {"MaskedFill",
     [](NodeCall& n) -> Outputs {
       return at::masked_fill(n.in(0), n.in(1).to(at::kBool), without_dimensions(n.in(2)));
     }},
};

}  // namespace cann_cpu::graph
