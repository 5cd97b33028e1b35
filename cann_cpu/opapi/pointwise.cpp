// SPDX-License-Identifier: Apache-2.0
// Arithmetic, unary functions, bits and logic, element by element.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "table.h"

using namespace cann_cpu;

UNARY(Abs, abs);
UNARY(Acos, acos);
UNARY(Acosh, acosh);
UNARY(Asin, asin);
UNARY(Asinh, asinh);
UNARY(Atan, atan);
UNARY(Atanh, atanh);
UNARY(BitwiseNot, bitwise_not);
UNARY(Ceil, ceil);
UNARY(Cos, cos);
UNARY(Cosh, cosh);
UNARY(Erf, erf);
UNARY(Erfc, erfc);
UNARY(Erfinv, erfinv);
UNARY(Exp, exp);
UNARY(Exp2, exp2);
UNARY(Expm1, expm1);
UNARY(Floor, floor);
UNARY(Frac, frac);
UNARY(Log, log);
UNARY(Log10, log10);
UNARY(Log1p, log1p);
UNARY(Log2, log2);
UNARY(LogicalNot, logical_not);
UNARY(Neg, neg);
UNARY(Reciprocal, reciprocal);
UNARY(Round, round);
UNARY(Rsqrt, rsqrt);
UNARY(Sign, sign);
UNARY(Sin, sin);
UNARY(Sinc, sinc);
UNARY(Sinh, sinh);
UNARY(Sqrt, sqrt);
UNARY(Tan, tan);
UNARY(Trunc, trunc);
ACLNN(RoundDecimals, [](In self, int64_t decimals, Out out) { at::round_out(out, self, decimals); });
ACLNN(InplaceRoundDecimals, [](Out self, int64_t decimals) { self.round_(decimals); });
ACLNN(AngleV2, [](In self, Out out) { at::angle_out(out, self); });
ACLNN(NanToNum, [](In self, float nan, float posinf, float neginf, Out out) {
  at::nan_to_num_out(out, self, nan, posinf, neginf);
});
ACLNN(InplaceNanToNum,
      [](Out self, float nan, float posinf, float neginf) { at::nan_to_num_out(self, self, nan, posinf, neginf); });

BINARY(Mul, Muls, mul);
BINARY(FloorDivide, FloorDivides, floor_divide);
BINARY(FmodTensor, FmodScalar, fmod);
BINARY(RemainderTensorTensor, RemainderTensorScalar, remainder);
ACLNN(RemainderScalarTensor, [](Scalar self, In other, Out out) { at::remainder_out(out, wrapped(self), other); });
BINARY(XLogYTensor, XLogYScalarOther, xlogy);
ACLNN(XLogYScalarSelf, [](Scalar self, In other, Out out) { at::xlogy_out(out, wrapped(self), other); });
BINARY_TENSOR(Atan2, atan2);
BINARY_TENSOR(Maximum, maximum);
BINARY_TENSOR(Minimum, minimum);
BINARY_TENSOR(Gcd, gcd);
BINARY_TENSOR(LogAddExp, logaddexp);
BINARY_TENSOR(LogAddExp2, logaddexp2);

BINARY(BitwiseAndTensor, BitwiseAndScalar, bitwise_and);
BINARY(BitwiseOrTensor, BitwiseOrScalar, bitwise_or);
BINARY(BitwiseXorTensor, BitwiseXorScalar, bitwise_xor);
BINARY(LeftShift, LeftShifts, bitwise_left_shift);
BINARY_TENSOR(RightShift, bitwise_right_shift);
BINARY_TENSOR(LogicalAnd, logical_and);
BINARY_TENSOR(LogicalOr, logical_or);
BINARY_TENSOR(LogicalXor, logical_xor);

ACLNN(Add, [](In self, In other, Scalar alpha, Out out) { at::add_out(out, self, other, alpha); });
ACLNN(Adds, [](In self, Scalar other, Scalar alpha, Out out) { at::add_out(out, self, wrapped(other), alpha); });
ACLNN(AddV3, [](Scalar self, In other, Scalar alpha, Out out) { at::add_out(out, wrapped(self), other, alpha); });
ACLNN(InplaceAdd, [](Out self, In other, Scalar alpha) { self.add_(other, alpha); });
ACLNN(InplaceAdds, [](Out self, Scalar other, Scalar alpha) { self.add_(other, alpha); });
ACLNN(Sub, [](In self, In other, Scalar alpha, Out out) { at::sub_out(out, self, other, alpha); });
ACLNN(Subs, [](In self, Scalar other, Scalar alpha, Out out) { at::sub_out(out, self, wrapped(other), alpha); });
ACLNN(InplaceSub, [](Out self, In other, Scalar alpha) { self.sub_(other, alpha); });
ACLNN(InplaceSubs, [](Out self, Scalar other, Scalar alpha) { self.sub_(other, alpha); });
ACLNN(Rsub, [](In self, In other, Scalar alpha, Out out) { at::sub_out(out, other, self, alpha); });
ACLNN(Rsubs, [](In self, Scalar other, Scalar alpha, Out out) { at::sub_out(out, wrapped(other), self, alpha); });
ACLNN(AddRelu, [](In self, In other, Scalar alpha, Out out) { at::_add_relu_out(out, self, other, alpha); });
ACLNN(InplaceAddRelu, [](Out self, In other, Scalar alpha) { at::_add_relu_(self, other, alpha); });

namespace {

std::optional<c10::string_view> rounding(int mode) {
  switch (mode) {
    case 0:
      return std::nullopt;
    case 1:
      return "trunc";
    case 2:
      return "floor";
    default:
      TORCH_CHECK(false, "mode must be 0 (true division), 1 (trunc) or 2 (floor), got ", mode);
  }
}

std::optional<c10::string_view> rounding_into(Out self) {
  return rounding(at::isIntegralType(self.scalar_type(), /*includeBool=*/false) ? 1 : 0);
}

}  // namespace

// The quotient loses its fraction where it replaces an integer, as on the NPU. ATen rejects that, but torch_npu's
// averages of integers need it.
ACLNN(Div, [](In self, In other, Out out) { at::div_out(out, self, other); });
ACLNN(Divs, [](In self, Scalar other, Out out) { at::div_out(out, self, wrapped(other)); });
ACLNN(InplaceDiv, [](Out self, In other) { at::div_out(self, self, other, rounding_into(self)); });
ACLNN(InplaceDivs, [](Out self, Scalar other) { at::div_out(self, self, wrapped(other), rounding_into(self)); });
ACLNN(DivMod, [](In self, In other, int mode, Out out) { at::div_out(out, self, other, rounding(mode)); });
ACLNN(DivMods,
      [](In self, Scalar other, int mode, Out out) { at::div_out(out, self, wrapped(other), rounding(mode)); });
ACLNN(InplaceDivMod, [](Out self, In other, int mode) { self.div_(other, rounding(mode)); });
ACLNN(InplaceDivMods, [](Out self, Scalar other, int mode) { self.div_(other, rounding(mode)); });

ACLNN(PowTensorTensor, [](In self, In exponent, Out out) { at::pow_out(out, self, exponent); });
ACLNN(PowTensorScalar, [](In self, Scalar exponent, Out out) { at::pow_out(out, self, exponent); });
ACLNN(PowScalarTensor, [](Scalar self, In exponent, Out out) { at::pow_out(out, self, exponent); });
ACLNN(InplacePowTensorTensor, [](Out self, In exponent) { self.pow_(exponent); });
ACLNN(InplacePowTensorScalar, [](Out self, Scalar exponent) { self.pow_(exponent); });

ACLNN(Addcmul, [](In self, In tensor1, In tensor2, Scalar value, Out out) {
  at::addcmul_out(out, self, tensor1, tensor2, value);
});
ACLNN(InplaceAddcmul, [](Out self, In tensor1, In tensor2, Scalar value) { self.addcmul_(tensor1, tensor2, value); });
ACLNN(Addcdiv, [](In self, In tensor1, In tensor2, Scalar value, Out out) {
  at::addcdiv_out(out, self, tensor1, tensor2, value);
});
ACLNN(InplaceAddcdiv, [](Out self, In tensor1, In tensor2, Scalar value) { self.addcdiv_(tensor1, tensor2, value); });
ACLNN(Lerp, [](In self, In end, In weight, Out out) { at::lerp_out(out, self, end, weight); });
ACLNN(Lerps, [](In self, In end, Scalar weight, Out out) { at::lerp_out(out, self, end, weight); });
ACLNN(InplaceLerp, [](Out self, In end, In weight) { self.lerp_(end, weight); });
ACLNN(InplaceLerps, [](Out self, In end, Scalar weight) { self.lerp_(end, weight); });

// torch_npu gives some of these an output of self's dtype where ATen promotes.
ACLNN(Clamp, [](In self, OptionalScalar min, OptionalScalar max, Out out) { assign(out, at::clamp(self, min, max)); });
ACLNN(ClampTensor, [](In self, OptionalIn min, OptionalIn max, Out out) { assign(out, at::clamp(self, min, max)); });
ACLNN(ClampMin, [](In self, Scalar min, Out out) { assign(out, at::clamp_min(self, min)); });
ACLNN(ClampMax, [](In self, Scalar max, Out out) { assign(out, at::clamp_max(self, max)); });
ACLNN(ClampMinTensor, [](In self, In min, Out out) { assign(out, at::clamp_min(self, min)); });
ACLNN(ClampMaxTensor, [](In self, In max, Out out) { assign(out, at::clamp_max(self, max)); });
ACLNN(InplaceClampMax, [](Out self, Scalar max) { self.clamp_max_(max); });
ACLNN(InplaceClampMinTensor, [](Out self, In min) { self.clamp_min_(min); });
ACLNN(InplaceClampMaxTensor, [](Out self, In max) { self.clamp_max_(max); });

ACLNN(Complex, [](In real, In imag, Out out) { at::complex_out(out, real, imag); });
ACLNN(Polar, [](In abs, In angle, Out out) { at::polar_out(out, abs, angle); });

ACLNN_TYPED(MaskedScale, "self: float32 float16 bfloat16; mask: uint8 int8 float16 float32; y: as self",
            [](In self, In mask, float scale, Out y) {
              TORCH_CHECK(mask.sizes() == self.sizes(), "mask has shape ", mask.sizes(), "; expected ", self.sizes());
              assign(y, in_float(self) * in_float(mask) * at::Scalar(scale));
            });

// Queries, keys and values of each head, with their biases; the queries by the root of a head's size.
ACLNN_TYPED(TransformBiasRescaleQkv, "qkv: float32 float16 bfloat16; qkv_bias, q_out, k_out, v_out: as qkv",
            [](In qkv, In qkv_bias, int64_t num_heads, Out q_out, Out k_out, Out v_out) {
              TORCH_CHECK(qkv.dim() == 3, "qkv has shape ", qkv.sizes(), "; expected 3 dimensions");
              TORCH_CHECK(num_heads > 0 && qkv.size(2) % (3 * num_heads) == 0, "num_heads is ", num_heads,
                          "; expected a divisor of a third of ", qkv.size(2), ", the last dimension of qkv");
              TORCH_CHECK(qkv_bias.sizes() == at::IntArrayRef({qkv.size(2)}), "qkv_bias has shape ", qkv_bias.sizes(),
                          "; expected [", qkv.size(2), "]");
              const int64_t size = qkv.size(2) / 3 / num_heads;
              const auto sums = (in_float(qkv) + in_float(qkv_bias)).unflatten(2, {3, num_heads, size});
              const auto heads = sums.permute({2, 0, 3, 1, 4});
              assign(q_out, heads[0] / at::Scalar(std::sqrt(static_cast<double>(size))));
              assign(k_out, heads[1]);
              assign(v_out, heads[2]);
            });
