// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic and selection.
#include "aclnn.h"

#include <ATen/ops/isinf.h>

namespace cann_cpu::graph {
namespace {

// x, broadcast over the mask, to fill.
at::Tensor copied_to_mask(NodeCall& n) { return broadcast({0, 1}, n.in(0).scalar_type())(n).copy_(n.in(0)); }

at::Tensor selected(NodeCall& n) {
  return broadcast({0, 1, 2}, at::promoteTypes(n.in(1).scalar_type(), n.in(2).scalar_type()))(n);
}

}  // namespace

const NodeTable kComparisonNodes = {
    {"Equal", comparison("EqTensor")},
    {"NotEqual", comparison("NeTensor")},
    {"Less", comparison("LtTensor")},
    {"LessEqual", comparison("LeTensor")},
    {"Greater", comparison("GtTensor")},
    {"GreaterEqual", comparison("GeTensor")},
    {"LogicalAnd", comparison("LogicalAnd")},
    {"LogicalOr", comparison("LogicalOr")},
    {"LogicalXor", comparison("LogicalXor")},
    {"LogicalNot", predicate("LogicalNot")},
    {"IsInf", [](NodeCall& n) -> Outputs { return at::isinf(n.in(0)); }},
    {"IsNan", aclnn("NeTensor", in(0), in(0), out(like(0, at::kBool)))},
    {"IsFinite", predicate("IsFinite")},
    {"SelectV2", aclnn("SWhere", in(0, at::kBool), in(1), in(2), out(selected))},
    {"MaskedFill", aclnn("InplaceMaskedFillTensor", out(copied_to_mask), in(1, at::kBool), in(2))},
};

}  // namespace cann_cpu::graph
