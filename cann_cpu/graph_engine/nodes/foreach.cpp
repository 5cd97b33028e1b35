// SPDX-License-Identifier: Apache-2.0
// One operation on every tensor of a list, as the optimizers of torch.optim make them.
#include "table.h"

#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_acos.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_asin.h>
#include <ATen/ops/_foreach_atan.h>
#include <ATen/ops/_foreach_cos.h>
#include <ATen/ops/_foreach_cosh.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_erf.h>
#include <ATen/ops/_foreach_erfc.h>
#include <ATen/ops/_foreach_exp.h>
#include <ATen/ops/_foreach_expm1.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_log.h>
#include <ATen/ops/_foreach_log10.h>
#include <ATen/ops/_foreach_log1p.h>
#include <ATen/ops/_foreach_log2.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_minimum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_pow.h>
#include <ATen/ops/_foreach_sigmoid.h>
#include <ATen/ops/_foreach_sin.h>
#include <ATen/ops/_foreach_sinh.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_foreach_tan.h>
#include <ATen/ops/_foreach_tanh.h>

namespace cann_cpu::graph {
namespace {

// List i of a node whose inputs are `lists` lists of equal length, and one tensor behind them if their number says so.
std::vector<at::Tensor> list(NodeCall& n, size_t i, size_t lists) {
  const size_t length = n.input_count() / lists;
  return n.in_range(i * length, length);
}

// The last input, which is no part of a list: a number, or a number for each tensor.
const at::Tensor& last(NodeCall& n) { return n.in(n.input_count() - 1); }
std::vector<at::Tensor> before_last(NodeCall& n) { return n.in_range(0, n.input_count() - 1); }
std::vector<at::Scalar> scalars(const at::Tensor& tensor) {
  std::vector<at::Scalar> values;
  for (const at::Tensor& value : tensor.unbind()) {
    values.push_back(scalar(value));
  }
  return values;
}

}  // namespace

// torch._foreach_op(list), (list, number) and (list, numbers), (list, list), (list, list, list, number), ...
#define FOREACH_UNARY(Op, function) \
  {"Foreach" #Op, [](NodeCall& n) -> Outputs { return at::_foreach_##function(n.in_from(0)); }}
#define FOREACH_WITH_NUMBERS(Op, function)                                                               \
  {"Foreach" #Op "Scalar",                                                                               \
   [](NodeCall& n) -> Outputs { return at::_foreach_##function(before_last(n), scalar(last(n))); }},     \
  {                                                                                                      \
    "Foreach" #Op "ScalarList",                                                                          \
        [](NodeCall& n) -> Outputs { return at::_foreach_##function(before_last(n), scalars(last(n))); } \
  }
#define FOREACH_BINARY(Op, function)                                                                                   \
  FOREACH_WITH_NUMBERS(Op, function), {                                                                                \
    "Foreach" #Op "List", [](NodeCall& n) -> Outputs { return at::_foreach_##function(list(n, 0, 2), list(n, 1, 2)); } \
  }
#define FOREACH_WITH_ALPHA(Op, function)                                                                              \
  FOREACH_WITH_NUMBERS(Op, function), {                                                                               \
    "Foreach" #Op "List",                                                                                             \
        [](NodeCall& n) -> Outputs { return at::_foreach_##function(list(n, 0, 2), list(n, 1, 2), scalar(last(n))); } \
  }
#define FOREACH_TERNARY_OF(Op, function, form, value)                                             \
  {"Foreach" #Op #form, [](NodeCall& n) -> Outputs {                                              \
     return at::_foreach_##function(list(n, 0, 3), list(n, 1, 3), list(n, 2, 3), value(last(n))); \
   }}
#define FOREACH_TERNARY(Op, function)                                                                      \
  FOREACH_TERNARY_OF(Op, function, Scalar, scalar), FOREACH_TERNARY_OF(Op, function, ScalarList, scalars), \
      FOREACH_TERNARY_OF(Op, function, List, )

const NodeTable kForeachNodes = {
    FOREACH_UNARY(Abs, abs),
    FOREACH_UNARY(ACos, acos),
    FOREACH_UNARY(ASin, asin),
    FOREACH_UNARY(ATan, atan),
    FOREACH_UNARY(Cos, cos),
    FOREACH_UNARY(Cosh, cosh),
    FOREACH_UNARY(Erf, erf),
    FOREACH_UNARY(Erfc, erfc),
    FOREACH_UNARY(Exp, exp),
    FOREACH_UNARY(Expm1, expm1),
    FOREACH_UNARY(Log, log),
    FOREACH_UNARY(Log10, log10),
    FOREACH_UNARY(Log1p, log1p),
    FOREACH_UNARY(Log2, log2),
    FOREACH_UNARY(Sigmoid, sigmoid),
    FOREACH_UNARY(Sin, sin),
    FOREACH_UNARY(Sinh, sinh),
    FOREACH_UNARY(Tan, tan),
    FOREACH_UNARY(Tanh, tanh),
    FOREACH_WITH_ALPHA(Add, add),
    FOREACH_WITH_ALPHA(Sub, sub),
    FOREACH_BINARY(Mul, mul),
    FOREACH_BINARY(Div, div),
    FOREACH_BINARY(Maximum, maximum),
    FOREACH_BINARY(Minimum, minimum),
    FOREACH_BINARY(Pow, pow),
    {"ForeachPowScalarAndTensor",
     [](NodeCall& n) -> Outputs { return at::_foreach_pow(scalar(n.in(0)), n.in_from(1)); }},
    FOREACH_TERNARY(Addcmul, addcmul),
    FOREACH_TERNARY(Addcdiv, addcdiv),
    {"ForeachLerpScalar",
     [](NodeCall& n) -> Outputs { return at::_foreach_lerp(list(n, 0, 2), list(n, 1, 2), scalar(last(n))); }},
    {"ForeachLerpList",
     [](NodeCall& n) -> Outputs { return at::_foreach_lerp(list(n, 0, 3), list(n, 1, 3), list(n, 2, 3)); }},
    {"ForeachNorm", [](NodeCall& n) -> Outputs { return at::_foreach_norm(before_last(n), scalar(last(n))); }},
};

#undef FOREACH_UNARY
#undef FOREACH_WITH_NUMBERS
#undef FOREACH_BINARY
#undef FOREACH_WITH_ALPHA
#undef FOREACH_TERNARY_OF
#undef FOREACH_TERNARY

}  // namespace cann_cpu::graph
