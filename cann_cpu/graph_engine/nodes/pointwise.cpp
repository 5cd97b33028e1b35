// SPDX-License-Identifier: Apache-2.0
// Arithmetic, unary functions and casts, element by element.
#include "aclnn.h"

#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sum.h>

namespace cann_cpu::graph {
namespace {

constexpr int64_t kTruncated = 1;  // aclnnDivMod's mode

Outputs logarithm(NodeCall& n) {
  n.one_of("base", {-1.f, 2.f, 10.f});
  n.only("scale", 1.f);
  n.only("shift", 0.f);
  const double base = n.real("base", -1);
  return unary(base == 2 ? "Log2" : base == 10 ? "Log10" : "Log")(n);
}

NodeFunction truncated_division() { return aclnn("DivMod", in(0), in(1), plain(kTruncated), out(promoted({0, 1}))); }

// Whole numbers are divided toward zero, others exactly.
Outputs divide(NodeCall& n) {
  static const NodeFunction exact = binary("Div"), truncated = truncated_division();
  return (at::isIntegralType(n.in(0).scalar_type(), /*includeBool=*/true) ? truncated : exact)(n);
}

// ATen has exact short cuts for a scalar exponent (2, 3, 0.5, ...), as eager takes them.
Outputs power(NodeCall& n) {
  static const NodeFunction by_tensor = binary("PowTensorTensor");
  static const NodeFunction by_number = aclnn("PowTensorScalar", in(0), number(1), out(promoted({0, 1})));
  return (n.in(1).dim() == 0 && n.in(0).dim() != 0 ? by_number : by_tensor)(n);
}

Outputs interpolate(NodeCall& n) {
  static const NodeFunction by_tensor = aclnn("Lerp", in(0), in(1), in(2), out(promoted({0, 1, 2})));
  static const NodeFunction by_number = aclnn("Lerps", in(0), in(1), number(2), out(promoted({0, 1})));
  return (n.in(2).dim() == 0 ? by_number : by_tensor)(n);
}

Outputs round(NodeCall& n) {
  static const NodeFunction to_integers = unary("Round");
  static const NodeFunction to_decimals = aclnn("RoundDecimals", in(0), integer("decimals", 0), out(like(0)));
  return (n.integer("decimals", 0) == 0 ? to_integers : to_decimals)(n);
}

// A bound of one element is used without dimensions.
Parameter bound(size_t i) {
  return computed([=](NodeCall& n) { return without_dimensions(n.in(i)); });
}
at::Tensor clipped(NodeCall& n) {
  const auto dtype = at::promoteTypes(n.in(0).scalar_type(), n.in(1).scalar_type());
  const bool numbers = n.in(1).numel() == 1 && n.in(2).numel() == 1;
  return numbers ? new_tensor(n.in(0).sizes(), dtype) : broadcast({0, 1, 2}, dtype)(n);
}

// The last dimension, or the second of NCHW and NCDHW.
int64_t dimension_of_channels(NodeCall& n) {
  const bool is_second = n.choice("data_format", {"NHWC", "NCHW", "NDHWC", "NCDHW"}) % 2 == 1;
  reject_unless(n.in(0).dim() >= 2, "a bias of fewer than two dimensions");
  return is_second ? 1 : n.in(0).dim() - 1;
}

// The bias of BiasAdd, with its elements along the dimension of channels.
at::Tensor bias_of_channels(NodeCall& n) {
  const at::Tensor& bias = n.in(1);
  const int64_t rank = n.in(0).dim(), channels = dimension_of_channels(n);
  reject_unless(bias.dim() == 1 && bias.size(0) == n.in(0).size(channels),
                "a bias that is not of one element for each channel");
  std::vector<int64_t> shape(rank - channels, 1);
  shape[0] = bias.size(0);
  return bias.reshape(shape);
}

Outputs bias_gradient(NodeCall& n) {
  const int64_t channels = dimension_of_channels(n);
  std::vector<int64_t> others;
  for (int64_t d = 0; d < n.in(0).dim(); ++d) {
    if (d != channels) others.push_back(d);
  }
  return n.in(0).sum(others);
}

Outputs sum_of_all(NodeCall& n) {
  n.only("N", static_cast<int64_t>(n.input_count()));
  at::Tensor sum = n.in(0).clone();
  for (const at::Tensor& each : n.in_from(1)) {
    reject_unless(each.sizes() == sum.sizes(), "a sum of tensors of different shapes");
    sum.add_(each);
  }
  return sum;
}

NodeFunction scaled_product(const char* name) {
  return aclnn(name, in(0), in(1), in(2), number(3), out(promoted({0, 1, 2})));
}

at::ScalarType part_of(at::ScalarType complex) { return c10::toRealValueType(complex); }

}  // namespace

const NodeTable kPointwiseNodes = {
    {"Add", aclnn("Add", in(0), in(1), value(kOne), out(promoted({0, 1})))},
    {"AxpyV2", aclnn("Add", in(0), in(1), number(2), out(promoted({0, 1})))},
    {"Axpy", aclnn("Add", in(0), in(1), scalar("alpha"), out(promoted({0, 1})))},
    {"BiasAdd", aclnn("Add", in(0), computed(bias_of_channels), value(kOne), out(like(0))), "", "data_format"},
    {"AddN", sum_of_all, "", "N"},
    {"BiasAddGrad", bias_gradient, "", "data_format"},
    {"Sub", aclnn("Sub", in(0), in(1), value(kOne), out(promoted({0, 1})))},
    {"Sxpy", aclnn("Sub", in(0), in(1), number(2, 1), out(promoted({0, 1})))},
    {"Mul", binary("Mul")},
    {"Muls", aclnn("Muls", in(0), scalar("value"), out(like(0)))},
    {"RealDiv", aclnn("Div", in(0), in(1), out(quotient({0, 1})))},
    {"Div", divide},
    {"TruncateDiv", truncated_division()},
    {"FloorDiv", binary("FloorDivide")},
    {"FloorMod", binary("RemainderTensorTensor")},
    {"Mod", binary("FmodTensor")},
    {"Pow", power},
    {"Addcmul", scaled_product("Addcmul")},
    {"Addcdiv", scaled_product("Addcdiv")},
    {"Lerp", interpolate},
    {"Maximum", binary("Maximum")},
    {"Minimum", binary("Minimum")},
    {"ClipByValueV2", aclnn("ClampTensor", in(0), bound(1), bound(2), out(clipped))},
    {"Atan2", binary("Atan2")},
    {"Neg", unary("Neg")},
    {"Abs", unary("Abs")},
    {"Reciprocal", unary("Reciprocal")},
    {"Exp", aclnn("Exp", in(0), only("base", -1.f), only("scale", 1.f), only("shift", 0.f), out(like(0)))},
    {"Expm1", unary("Expm1")},
    {"Log", logarithm},
    {"Log1p", unary("Log1p")},
    {"Sqrt", unary("Sqrt")},
    {"Rsqrt", unary("Rsqrt")},
    {"Square", aclnn("PowTensorScalar", in(0), value(at::Scalar(2)), out(like(0)))},
    {"Sin", unary("Sin")},
    {"Cos", unary("Cos")},
    {"Tan", unary("Tan")},
    {"Asin", unary("Asin")},
    {"Acos", unary("Acos")},
    {"Atan", unary("Atan")},
    {"Sinh", unary("Sinh")},
    {"Cosh", unary("Cosh")},
    {"Tanh", unary("Tanh")},
    {"Asinh", unary("Asinh")},
    {"Acosh", unary("Acosh")},
    {"Atanh", unary("Atanh")},
    {"Erf", unary("Erf")},
    {"Erfc", unary("Erfc")},
    {"Erfinv", unary("Erfinv")},
    {"Floor", unary("Floor")},
    {"Ceil", unary("Ceil")},
    {"Round", round, "", "decimals"},
    {"Trunc", unary("Trunc")},
    {"Sign", unary("Sign")},
    {"NanToNum", aclnn("NanToNum", in(0), real32("nan"), real32("posinf"), real32("neginf"), out(like(0)))},
    {"BitwiseAnd", binary("BitwiseAndTensor")},
    {"BitwiseOr", binary("BitwiseOrTensor")},
    {"BitwiseXor", binary("BitwiseXorTensor")},
    {"Invert", unary("BitwiseNot")},
    {"LeftShift", binary("LeftShift")},
    {"RightShift", binary("RightShift")},
    {"Cast", [](NodeCall& n) -> Outputs { return n.in(0).to(n.dtype("dst_type")); }},
    {"Complex", aclnn("Complex", in(0), in(1), out([](NodeCall& n) {
                        return broadcast({0, 1}, n.dtype("Tout", at::toComplexType(n.in(0).scalar_type())))(n);
                      }))},
    {"Real",
     [](NodeCall& n) -> Outputs { return at::real(n.in(0)).to(n.dtype("Tout", part_of(n.in(0).scalar_type()))); }},
    {"Imag",
     [](NodeCall& n) -> Outputs { return at::imag(n.in(0)).to(n.dtype("Tout", part_of(n.in(0).scalar_type()))); }},
};

}  // namespace cann_cpu::graph
