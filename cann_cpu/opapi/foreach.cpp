// SPDX-License-Identifier: Apache-2.0
// One operation on every tensor of a list, and the fused optimizer steps.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <tuple>

#include "table.h"

using namespace cann_cpu;

namespace {

at::Tensor half_away_from_zero(const at::Tensor& x) {
  const auto whole = x.trunc();
  return whole + at::sign(x) * (x - whole).abs().ge(0.5);
}

// Calls compute(i, out) for the tensors of out. The other lists, std::tie(...), have the same length.
template <class... Lists, class Compute>
void each(OutTensors out, const std::tuple<Lists&...>& others, const Compute& compute) {
  const auto check = [&](const auto& list) {
    TORCH_CHECK(list.size() == out.size(), "a list has ", list.size(), " elements, the list of results has ",
                out.size());
  };
  std::apply([&](const auto&... lists) { (check(lists), ...); }, others);
  for (size_t i = 0; i < out.size(); ++i) {
    at::Tensor result = at::alias(out[i]);  // which ATen resizes alone
    compute(i, result);
    TORCH_CHECK(result.sizes() == out[i].sizes() && result.data_ptr() == out[i].data_ptr(), "tensor ", i,
                " of the result has shape ", result.sizes(), ", the given output ", out[i].sizes());
  }
}

}  // namespace

#define FOREACH_UNARY(Op, function)                                                                \
  ACLNN(Foreach##Op, [](Tensors self, OutTensors out) {                                            \
    each(out, std::tie(self), [&](size_t i, Out result) { at::function##_out(result, self[i]); }); \
  })

FOREACH_UNARY(Abs, abs);
FOREACH_UNARY(Acos, acos);
FOREACH_UNARY(Asin, asin);
FOREACH_UNARY(Atan, atan);
FOREACH_UNARY(Cos, cos);
FOREACH_UNARY(Cosh, cosh);
FOREACH_UNARY(Erf, erf);
FOREACH_UNARY(Erfc, erfc);
FOREACH_UNARY(Exp, exp);
FOREACH_UNARY(Expm1, expm1);
FOREACH_UNARY(Log, log);
FOREACH_UNARY(Log10, log10);
FOREACH_UNARY(Log1p, log1p);
FOREACH_UNARY(Log2, log2);
FOREACH_UNARY(Neg, neg);
FOREACH_UNARY(Reciprocal, reciprocal);
FOREACH_UNARY(Sigmoid, sigmoid);
FOREACH_UNARY(Sign, sign);
FOREACH_UNARY(Sin, sin);
FOREACH_UNARY(Sinh, sinh);
FOREACH_UNARY(Sqrt, sqrt);
FOREACH_UNARY(Tan, tan);
FOREACH_UNARY(Tanh, tanh);
ACLNN(ForeachCopy, [](Tensors source, OutTensors out) {
  each(out, std::tie(source), [&](size_t i, Out result) { result.copy_(source[i]); });
});
ACLNN(ForeachZeroInplace, [](OutTensors self) { each(self, std::tie(), [](size_t, Out result) { result.zero_(); }); });
ACLNN(ForeachNorm, [](Tensors self, Scalar order, OutTensors out) {
  each(out, std::tie(self),
       [&](size_t i, Out result) { assign(result, at::linalg_vector_norm(self[i], order).reshape(result.sizes())); });
});
namespace {

// Rounds as numbers say: 1 to the even one of two, 2 down, 3 up, 4 away from zero, 5 towards zero, 7 leaves a fraction.
void round_off(Tensors self, int64_t mode, OutTensors out) {
  each(out, std::tie(self), [&](size_t i, Out result) {
    switch (mode) {
      case 1:
        return void(at::round_out(result, self[i]));
      case 2:
        return void(at::floor_out(result, self[i]));
      case 3:
        return void(at::ceil_out(result, self[i]));
      case 4:
        return void(result.copy_(half_away_from_zero(self[i])));
      case 5:
        return void(at::trunc_out(result, self[i]));
      case 7:
        return void(at::frac_out(result, self[i]));
      default:
        TORCH_CHECK(false, "round mode ", mode, " is unknown");
    }
  });
}

// A number that a function takes as a tensor of one element.
at::Scalar number_in(const char* name, In tensor) {
  TORCH_CHECK(tensor.numel() == 1, name, " has shape ", tensor.sizes(), "; expected 1 element");
  return tensor.item();
}

}  // namespace

ACLNN(ForeachRoundOffNumberV2, [](Tensors self, Scalar mode, OutTensors out) { round_off(self, mode.toLong(), out); });
ACLNN_TYPED_CHECKED(ForeachRoundOffNumber,
                    "x: float32 float16 bfloat16; round_mode: int8; out: float32 float16 bfloat16",
                    [](Phase phase, Tensors x, In round_mode, OutTensors out) {
                      TORCH_CHECK(x.size() == out.size(), "out has ", out.size(), " tensors; expected ", x.size(),
                                  ", as x");
                      TORCH_CHECK(round_mode.numel() == 1, "round_mode has shape ", round_mode.sizes(),
                                  "; expected 1 element");
                      if (phase == Phase::Check) return;
                      round_off(x, number_in("round_mode", round_mode).toLong(), out);
                    });

namespace {

constexpr const char* kForeachScalar =
    "x: float32 float16 bfloat16 int32; scalar: float32 float16 bfloat16 int32; out: float32 float16 bfloat16 int32";
constexpr const char* kForeachLists =
    "x1, x2: float32 float16 bfloat16 int32; alpha: float32 float16 bfloat16 int32; "
    "out: float32 float16 bfloat16 int32";
constexpr const char* kForeachTernary =
    "x1, x2, x3: float32 float16 bfloat16 int32; scalar: float32 float16 bfloat16 int32; "
    "out: float32 float16 bfloat16 int32";

}  // namespace

// aclnnForeachOpScalarV2(self, number, out), aclnnForeachOpScalarList(self, numbers, out), and aclnnForeachOpScalar
// with the number in a tensor.
#define FOREACH_SCALARS(Op, function)                                                                              \
  ACLNN(Foreach##Op##ScalarV2, [](Tensors self, Scalar other, OutTensors out) {                                    \
    each(out, std::tie(self), [&](size_t i, Out result) { at::function##_out(result, self[i], wrapped(other)); }); \
  });                                                                                                              \
  ACLNN(Foreach##Op##ScalarList, [](Tensors self, Scalars other, OutTensors out) {                                 \
    each(out, std::tie(self, other),                                                                               \
         [&](size_t i, Out result) { at::function##_out(result, self[i], wrapped(other[i])); });                   \
  });                                                                                                              \
  ACLNN_TYPED(Foreach##Op##Scalar, kForeachScalar, [](Tensors x, In scalar, OutTensors out) {                      \
    const at::Tensor number = wrapped(number_in("scalar", scalar));                                                \
    each(out, std::tie(x), [&](size_t i, Out result) { at::function##_out(result, x[i], number); });               \
  })

// The same, and aclnnForeachOpList(self, other, out).
#define FOREACH_BINARY(Op, function)                                                                                \
  ACLNN(Foreach##Op##List, [](Tensors self, Tensors other, OutTensors out) {                                        \
    each(out, std::tie(self, other), [&](size_t i, Out result) { at::function##_out(result, self[i], other[i]); }); \
  });                                                                                                               \
  FOREACH_SCALARS(Op, function)

FOREACH_BINARY(Mul, mul);
FOREACH_BINARY(Div, div);
FOREACH_BINARY(Maximum, maximum);
FOREACH_BINARY(Minimum, minimum);

#define FOREACH_WITH_ALPHA(Op, function)                                                                          \
  ACLNN(Foreach##Op##ListV2, [](Tensors self, Tensors other, Scalar alpha, OutTensors out) {                      \
    each(out, std::tie(self, other),                                                                              \
         [&](size_t i, Out result) { at::function##_out(result, self[i], other[i], alpha); });                    \
  });                                                                                                             \
  ACLNN_TYPED(Foreach##Op##List, kForeachLists, [](Tensors x1, Tensors x2, In alpha, OutTensors out) {            \
    const at::Scalar factor = number_in("alpha", alpha);                                                          \
    each(out, std::tie(x1, x2), [&](size_t i, Out result) { at::function##_out(result, x1[i], x2[i], factor); }); \
  });                                                                                                             \
  FOREACH_SCALARS(Op, function)

FOREACH_WITH_ALPHA(Add, add);
FOREACH_WITH_ALPHA(Sub, sub);

ACLNN(ForeachPowList, [](Tensors self, Tensors exponent, OutTensors out) {
  each(out, std::tie(self, exponent), [&](size_t i, Out result) { at::pow_out(result, self[i], exponent[i]); });
});
ACLNN(ForeachPowScalarV2, [](Tensors self, Scalar exponent, OutTensors out) {
  each(out, std::tie(self), [&](size_t i, Out result) { at::pow_out(result, self[i], exponent); });
});
ACLNN_TYPED(ForeachPowScalar, kForeachScalar, [](Tensors x, In scalar, OutTensors out) {
  const at::Scalar exponent = number_in("scalar", scalar);
  each(out, std::tie(x), [&](size_t i, Out result) { at::pow_out(result, x[i], exponent); });
});
ACLNN(ForeachPowScalarList, [](Tensors self, Scalars exponent, OutTensors out) {
  each(out, std::tie(self, exponent), [&](size_t i, Out result) { at::pow_out(result, self[i], exponent[i]); });
});
ACLNN(ForeachPowScalarAndTensor, [](Scalar self, Tensors exponent, OutTensors out) {
  each(out, std::tie(exponent), [&](size_t i, Out result) { at::pow_out(result, self, exponent[i]); });
});
ACLNN(ForeachLerpScalar, [](Tensors self, Tensors end, Scalar weight, OutTensors out) {
  each(out, std::tie(self, end), [&](size_t i, Out result) { at::lerp_out(result, self[i], end[i], weight); });
});
ACLNN(ForeachLerpList, [](Tensors self, Tensors end, Tensors weight, OutTensors out) {
  each(out, std::tie(self, end, weight),
       [&](size_t i, Out result) { at::lerp_out(result, self[i], end[i], weight[i]); });
});

// aclnnForeachOpScalarV2(self, tensor1, tensor2, value, out); ScalarList has its values in a tensor.
#define FOREACH_TERNARY(Op, function)                                                                             \
  ACLNN(Foreach##Op##ScalarV2, [](Tensors self, Tensors tensor1, Tensors tensor2, Scalar value, OutTensors out) { \
    each(out, std::tie(self, tensor1, tensor2),                                                                   \
         [&](size_t i, Out result) { at::function##_out(result, self[i], tensor1[i], tensor2[i], value); });      \
  });                                                                                                             \
  ACLNN_TYPED(Foreach##Op##Scalar, kForeachTernary,                                                               \
              [](Tensors x1, Tensors x2, Tensors x3, In scalar, OutTensors out) {                                 \
                const at::Scalar value = number_in("scalar", scalar);                                             \
                each(out, std::tie(x1, x2, x3),                                                                   \
                     [&](size_t i, Out result) { at::function##_out(result, x1[i], x2[i], x3[i], value); });      \
              });                                                                                                 \
  ACLNN(Foreach##Op##ScalarList, [](Tensors self, Tensors tensor1, Tensors tensor2, In values, OutTensors out) {  \
    each(out, std::tie(self, tensor1, tensor2), [&](size_t i, Out result) {                                       \
      at::function##_out(result, self[i], tensor1[i], tensor2[i], values.select(0, i).item());                    \
    });                                                                                                           \
  })

FOREACH_TERNARY(Addcmul, addcmul);
FOREACH_TERNARY(Addcdiv, addcdiv);

namespace {

// ATen's fused steps take it for granted that each list has tensors like the parameters.
template <class... Lists>
void require_like(const std::vector<at::Tensor>& parameters, const Lists&... lists) {
  const auto check = [&](const std::vector<at::Tensor>& list) {
    TORCH_CHECK(list.empty() || list.size() == parameters.size(), "a list has ", list.size(), " tensors, there are ",
                parameters.size(), " parameters");
    for (size_t i = 0; i < list.size(); ++i) {
      TORCH_CHECK(list[i].sizes() == parameters[i].sizes(), "tensor ", i, " of a list has shape ", list[i].sizes(),
                  ", its parameter ", parameters[i].sizes());
    }
  };
  (check(lists), ...);
}

}  // namespace

// torch_npu passes the number of steps made before this one.
ACLNN(ApplyAdamWV2, [](Out parameter, Out exp_avg, Out exp_avg_sq, OptionalOut max_exp_avg_sq, In grad, In step,
                       float lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize) {
  std::vector<at::Tensor> largest;
  if (max_exp_avg_sq.has_value()) largest.push_back(*max_exp_avg_sq);
  require_like({parameter}, std::vector{grad}, std::vector{exp_avg}, std::vector{exp_avg_sq}, largest);
  at::_fused_adamw_({parameter}, {grad}, {exp_avg}, {exp_avg_sq}, largest, {step.add(1).reshape({})}, lr, beta1, beta2,
                    weight_decay, eps, amsgrad, maximize);
});
// The powers are those of the steps before this one.
ACLNN(ApplyAdamW, [](Out parameter, Out exp_avg, Out exp_avg_sq, In beta1_power, In beta2_power, In lr, In weight_decay,
                     In beta1, In beta2, In epsilon, In grad, OptionalOut max_exp_avg_sq, bool amsgrad, bool maximize) {
  TORCH_CHECK(!amsgrad || max_exp_avg_sq.has_value(), "amsgrad is true, so maxGradNorm must be given");
  require_like({parameter}, std::vector{grad}, std::vector{exp_avg}, std::vector{exp_avg_sq});
  const auto number = [](In tensor) { return tensor.item<double>(); };
  const auto g = maximize ? in_float(grad).neg() : in_float(grad);
  const auto mean = in_float(exp_avg).lerp(g, 1 - number(beta1));
  auto square = in_float(exp_avg_sq) * number(beta2) + g * g * (1 - number(beta2));
  exp_avg.copy_(mean);
  exp_avg_sq.copy_(square);
  if (amsgrad) {
    square = at::maximum(in_float(*max_exp_avg_sq), square);
    max_exp_avg_sq->copy_(square);
  }
  const auto root = (square / (1 - number(beta2_power) * number(beta2))).sqrt() + number(epsilon);
  const auto step = mean / root * (number(lr) / (1 - number(beta1_power) * number(beta1)));
  parameter.copy_(in_float(parameter) * (1 - number(lr) * number(weight_decay)) - step);
});
// var -= lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon), with the powers of this step.
ACLNN_TYPED(ApplyAdam,
            "var: float32 float16 bfloat16; m, v: as var; beta1_power, beta2_power, lr, beta1, beta2, epsilon: float32 "
            "float16 bfloat16; grad: as var",
            [](InOut var, InOut m, InOut v, In beta1_power, In beta2_power, In lr, In beta1, In beta2, In epsilon,
               In grad, Ignored<bool>, bool use_nesterov) {
              require_like({var}, std::vector<at::Tensor>{grad}, std::vector<at::Tensor>{m},
                           std::vector<at::Tensor>{v});
              const auto g = in_float(grad);
              const double b1 = number_in("beta1", beta1).toDouble(), b2 = number_in("beta2", beta2).toDouble();
              const double power1 = number_in("beta1_power", beta1_power).toDouble();
              const double power2 = number_in("beta2_power", beta2_power).toDouble();
              const double rate = number_in("lr", lr).toDouble() * std::sqrt(1 - power2) / (1 - power1);
              const auto mean = in_float(m) * b1 + g * (1 - b1), square = in_float(v) * b2 + g * g * (1 - b2);
              const auto direction = use_nesterov ? mean * b1 + g * (1 - b1) : mean;
              const auto step = direction / (square.sqrt() + number_in("epsilon", epsilon).toDouble());
              m.copy_(mean);
              v.copy_(square);
              var.copy_(in_float(var) - step * rate);
            });
ACLNN(FusedSgd, [](OutTensors parameters, OutTensors grads, OutTensors momentum_buffers, OptionalIn grad_scale,
                   float weight_decay, float momentum, float lr, float dampening, bool nesterov, bool maximize,
                   bool is_first_step) {
  require_like(parameters, grads, momentum_buffers);
  at::_fused_sgd_(parameters, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize,
                  is_first_step, grad_scale);
});

// torch.amp's GradScaler: divides the gradients by the scale and notes whether one was not finite.
ACLNN(ForeachNonFiniteCheckAndUnscale, [](OutTensors grads, Out found_inf, In inverse_scale) {
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inverse_scale);
});
ACLNN(AmpUpdateScale, [](In scale, In growth_tracker, In found_inf, double growth_factor, double backoff_factor,
                         int64_t growth_interval, Out new_scale, Out new_tracker) {
  new_scale.copy_(scale);
  new_tracker.copy_(growth_tracker);
  at::_amp_update_scale_(new_scale, new_tracker, found_inf, growth_factor, backoff_factor, growth_interval);
});
