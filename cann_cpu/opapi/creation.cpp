// SPDX-License-Identifier: Apache-2.0
// Tensors filled by a rule.
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/fill_diagonal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/range.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include "table.h"

using namespace cann_cpu;

ACLNN(InplaceZero, [](Out self) { self.zero_(); });
ACLNN(InplaceOne, [](Out self) { self.fill_(1); });
ACLNN(InplaceFillScalar, [](Out self, Scalar value) { self.fill_(value); });
ACLNN(InplaceFillTensor, [](Out self, In value) { self.fill_(value.reshape({})); });
ACLNN(InplaceFillDiagonal, [](Out self, Scalar value, bool wrap) { self.fill_diagonal_(value, wrap); });
ACLNN(Arange, [](Scalar start, Scalar end, Scalar step, Out out) { at::arange_out(out, start, end, step); });
ACLNN(Range, [](Scalar start, Scalar end, Scalar step, Out out) {
  const bool is_integral = at::isIntegralType(out.scalar_type(), /*includeBool=*/true);
  TORCH_CHECK(!is_integral || step.to<int64_t>() != 0, "step is 0 in ", out.scalar_type());
  at::range_out(out, start, end, step);
});
ACLNN(Linspace, [](Scalar start, Scalar end, int64_t steps, Out out) { at::linspace_out(out, start, end, steps); });
ACLNN(LogSpace, [](Scalar start, Scalar end, int64_t steps, double base, Out out) {
  at::logspace_out(out, start, end, steps, base);
});
ACLNN(Eye, [](int64_t n, int64_t m, Out out) { at::eye_out(out, n, m); });
ACLNN(Tril, [](In self, int64_t diagonal, Out out) { at::tril_out(out, self, diagonal); });
ACLNN(Triu, [](In self, int64_t diagonal, Out out) { at::triu_out(out, self, diagonal); });
ACLNN(InplaceTril, [](Out self, int64_t diagonal) { self.tril_(diagonal); });
ACLNN(InplaceTriu, [](Out self, int64_t diagonal) { self.triu_(diagonal); });
