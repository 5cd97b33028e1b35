// SPDX-License-Identifier: Apache-2.0
// Helpers for the rows of the table: short names for the parameter types of op.h, and macros for families of functions.
#pragma once

#include <ATen/ScalarOps.h>

#include "cann_cpu/op.h"
#include "trial.h"

namespace cann_cpu {

using In = const at::Tensor&;
using Out = at::Tensor&;
using OptionalIn = const std::optional<at::Tensor>&;
using OptionalOut = std::optional<at::Tensor>&;
using Tensors = const std::vector<at::Tensor>&;
using OptionalTensors = const std::optional<std::vector<at::Tensor>>&;
using OutTensors = std::vector<at::Tensor>&;
using Scalar = const at::Scalar&;
using OptionalScalar = const std::optional<at::Scalar>&;
using Scalars = const std::vector<at::Scalar>&;
using Ints = at::IntArrayRef;
using Bools = at::ArrayRef<bool>;
using Text = const std::string&;
using OptionalInts = at::OptionalIntArrayRef;
using Dtype = Ignored<int32_t>;        // an aclDataType that says what the output's dtype says as well
using CubeMathType = Ignored<int8_t>;  // which precision a matrix product may drop to; the CPU keeps all of it

// For the ATen functions that have no out argument, or take another dtype there: copies, with a cast.
inline void assign(const at::Tensor& out, const at::Tensor& value) {
  TORCH_CHECK(out.sizes() == value.sizes(), "the result has shape ", value.sizes(), ", the given output has shape ",
              out.sizes());
  out.copy_(value);
}

// A gradient that a mask leaves out is undefined.
inline void assign(OptionalOut out, const at::Tensor& value) {
  if (out.has_value() && value.defined()) assign(*out, value);
}

// For what ATen's CPU kernels do not have in the half types, or round on the way there: float, rounded once at the end.
inline at::Tensor in_float(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// A number as ATen passes it to a binary operator: it takes no part in the promotion of tensor dtypes.
inline at::Tensor wrapped(const at::Scalar& number) { return at::native::wrapped_scalar_tensor(number); }

}  // namespace cann_cpu

// The rows of op.h, with a trial in phase one; listed for docs/functions.md.
#undef ACLNN
#define ACLNN_ROW(op, phase_two, dtypes, trial, ...)                                                 \
  CANN_CPU_DEFINE_ACLNN(op, phase_two, dtypes, trial, __VA_ARGS__);                                  \
  [[gnu::used, gnu::section("aclnn_rows")]] static const cann_cpu::detail::Row* const op##IsListed { \
    &op##Definition::row                                                                             \
  }
#define ACLNN_TRIED(op, rejects, dtypes, ...) \
  ACLNN_ROW(op, cann_cpu::detail::phase_two, dtypes, cann_cpu::tried<cann_cpu::rejects>, __VA_ARGS__)
#define ACLNN(op, ...) ACLNN_TRIED(op, Rejects::Any, nullptr, __VA_ARGS__)

// For a kernel whose shapes depend on the tensors' values: a trial only shows which dtypes it takes.
#define ACLNN_OF_VALUES(op, ...) ACLNN_TRIED(op, Rejects::Dtypes, nullptr, __VA_ARGS__)

// With a table of dtypes (signature.h) for phase one: with a trial, or, for a kernel whose errors depend on the
// tensors' values, without one: its first parameter is a Phase, and it checks the rest.
#define ACLNN_TYPED(op, dtypes, ...) ACLNN_TRIED(op, Rejects::Any, dtypes, __VA_ARGS__)
#define ACLNN_TYPED_CHECKED(op, dtypes, ...) ACLNN_ROW(op, cann_cpu::detail::phase_two, dtypes, nullptr, __VA_ARGS__)

// aclnnOp(self, out) and aclnnInplaceOp(self).
#define UNARY(Op, function)                                           \
  ACLNN(Op, [](In self, Out out) { at::function##_out(out, self); }); \
  ACLNN(Inplace##Op, [](Out self) { at::function##_out(self, self); })

// aclnnTensorOp(self, other, out) and aclnnInplaceTensorOp(self, other).
#define BINARY_TENSOR(TensorOp, function)                                                    \
  ACLNN(TensorOp, [](In self, In other, Out out) { at::function##_out(out, self, other); }); \
  ACLNN(Inplace##TensorOp, [](Out self, In other) { at::function##_out(self, self, other); })

// The same, and with a number for other.
#define BINARY(TensorOp, ScalarOp, function)                                                              \
  BINARY_TENSOR(TensorOp, function);                                                                      \
  ACLNN(ScalarOp, [](In self, Scalar other, Out out) { at::function##_out(out, self, wrapped(other)); }); \
  ACLNN(Inplace##ScalarOp, [](Out self, Scalar other) { at::function##_out(self, self, wrapped(other)); })
