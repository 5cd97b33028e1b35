// SPDX-License-Identifier: Apache-2.0
// Arithmetic, unary mathematics and casts, element by element.
#include "table.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/div.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/square_ops.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_ops.h>

#include <cmath>

namespace cann_cpu::graph {
namespace {

using namespace at::_ops;

Outputs logarithm(NodeCall& n) {
  refuse_unless(n.real("scale", 1) == 1 && n.real("shift", 0) == 0, "a scale or shift");
  const double base = n.real("base", -1);
  if (base == 2) {
    return log2::call(n.in(0));
  }
  if (base == 10) {
    return log10::call(n.in(0));
  }
  refuse_unless(base == -1, "a base other than e, 2 and 10");
  return log::call(n.in(0));
}

Outputs exponential(NodeCall& n) {
  refuse_unless(n.real("base", -1) == -1 && n.real("scale", 1) == 1 && n.real("shift", 0) == 0,
                "a base, scale or shift");
  return exp::call(n.in(0));
}

// Whole numbers are divided toward zero, others exactly.
Outputs divide(NodeCall& n) {
  if (at::isIntegralType(n.in(0).scalar_type(), /*includeBool=*/true)) {
    return at::div(n.in(0), n.in(1), "trunc");
  }
  return at::div(n.in(0), n.in(1));
}

// A minimum or maximum that torchair has made up, because the clamp has only the other, leaves every number as it is.
Outputs clip(NodeCall& n) {
  return at::clamp(n.in(0), std::optional(without_dimensions(n.in(1))), std::optional(without_dimensions(n.in(2))));
}

}  // namespace

const NodeTable kPointwiseNodes = {
    {"Add", [](NodeCall& n) -> Outputs { return at::add(n.in(0), n.in(1)); }},
    {"AxpyV2", [](NodeCall& n) -> Outputs { return at::add(n.in(0), n.in(1), scalar(n.in(2))); }},
    {"Axpy", [](NodeCall& n) -> Outputs { return at::add(n.in(0), n.in(1), n.real("alpha", 1)); }},
    {"Sxpy",
     [](NodeCall& n) -> Outputs {
       return n.has(2) ? at::sub(n.in(0), n.in(1), scalar(n.in(2))) : at::sub(n.in(0), n.in(1));
     }},
    {"Sub", [](NodeCall& n) -> Outputs { return at::sub(n.in(0), n.in(1)); }},
    {"Mul", [](NodeCall& n) -> Outputs { return at::mul(n.in(0), n.in(1)); }},
    {"Muls", [](NodeCall& n) -> Outputs { return at::mul(n.in(0), n.real("value", 1)); }},
    {"RealDiv", [](NodeCall& n) -> Outputs { return at::div(n.in(0), n.in(1)); }},
    {"Div", divide},
    {"TruncateDiv", [](NodeCall& n) -> Outputs { return at::div(n.in(0), n.in(1), "trunc"); }},
    {"FloorDiv", binary<floor_divide::call>},
    {"FloorMod", binary<remainder_Tensor::call>},
    {"Mod", binary<remainder_Tensor::call>},
    {"Pow",
     [](NodeCall& n) -> Outputs {
       // ATen has exact short cuts for a scalar exponent (2, 3, 0.5, ...), as eager takes them.
       return n.in(1).dim() == 0 && n.in(0).dim() != 0 ? at::pow(n.in(0), scalar(n.in(1))) : at::pow(n.in(0), n.in(1));
     }},
    {"Addcmul", [](NodeCall& n) -> Outputs { return at::addcmul(n.in(0), n.in(1), n.in(2), scalar(n.in(3))); }},
    {"Addcdiv", [](NodeCall& n) -> Outputs { return at::addcdiv(n.in(0), n.in(1), n.in(2), scalar(n.in(3))); }},
    {"Lerp",
     [](NodeCall& n) -> Outputs {
       return n.in(2).dim() == 0 ? at::lerp(n.in(0), n.in(1), scalar(n.in(2))) : at::lerp(n.in(0), n.in(1), n.in(2));
     }},
    {"Maximum", binary<maximum::call>},
    {"Minimum", binary<minimum::call>},
    {"ClipByValueV2", clip},
    {"Atan2", binary<atan2::call>},
    {"Neg", unary<neg::call>},
    {"Abs", unary<abs::call>},
    {"Reciprocal", unary<reciprocal::call>},
    {"Exp", exponential},
    {"Expm1", unary<expm1::call>},
    {"Log", logarithm},
    {"Log1p", unary<log1p::call>},
    {"Sqrt", unary<sqrt::call>},
    {"Rsqrt", unary<rsqrt::call>},
    {"Square", unary<square::call>},
    {"Sin", unary<sin::call>},
    {"Cos", unary<cos::call>},
    {"Tan", unary<tan::call>},
    {"Asin", unary<asin::call>},
    {"Acos", unary<acos::call>},
    {"Atan", unary<atan::call>},
    {"Sinh", unary<sinh::call>},
    {"Cosh", unary<cosh::call>},
    {"Tanh", unary<tanh::call>},
    {"Asinh", unary<asinh::call>},
    {"Acosh", unary<acosh::call>},
    {"Atanh", unary<atanh::call>},
    {"Erf", unary<erf::call>},
    {"Erfc", unary<erfc::call>},
    {"Erfinv", unary<erfinv::call>},
    {"Floor", unary<floor::call>},
    {"Ceil", unary<ceil::call>},
    {"Round", unary<round::call>},
    {"Trunc", unary<trunc::call>},
    {"Sign", unary<sign::call>},
    {"NanToNum",
     [](NodeCall& n) -> Outputs {
       return at::nan_to_num(n.in(0), n.real("nan", 0), n.real("posinf", 0), n.real("neginf", 0));
     }},
    {"BitwiseAnd", binary<bitwise_and_Tensor::call>},
    {"BitwiseOr", binary<bitwise_or_Tensor::call>},
    {"BitwiseXor", binary<bitwise_xor_Tensor::call>},
    {"Invert", unary<bitwise_not::call>},
    {"LeftShift", binary<bitwise_left_shift_Tensor::call>},
    {"RightShift", binary<bitwise_right_shift_Tensor::call>},
    {"Cast", [](NodeCall& n) -> Outputs { return n.in(0).to(n.dtype("dst_type")); }},
};

}  // namespace cann_cpu::graph
