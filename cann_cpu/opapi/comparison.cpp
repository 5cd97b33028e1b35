// SPDX-License-Identifier: Apache-2.0
// Comparisons and tests, element by element.
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/isposinf.h>
#include <ATen/ops/le.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/where.h>

#include "table.h"

using namespace cann_cpu;

BINARY(EqTensor, EqScalar, eq);
BINARY(NeTensor, NeScalar, ne);
BINARY(GeTensor, GeScalar, ge);
BINARY(GtTensor, GtScalar, gt);
BINARY(LeTensor, LeScalar, le);
BINARY(LtTensor, LtScalar, lt);

ACLNN(Equal, [](In self, In other, Out out) { out.fill_(at::equal(self, other)); });
ACLNN(IsClose, [](In self, In other, double rtol, double atol, bool equal_nan, Out out) {
  assign(out, at::isclose(self, other, rtol, atol, equal_nan));
});
ACLNN(IsFinite, [](In self, Out out) { assign(out, at::isfinite(self)); });
ACLNN(IsPosInf, [](In self, Out out) { at::isposinf_out(out, self); });
ACLNN(IsNegInf, [](In self, Out out) { at::isneginf_out(out, self); });
ACLNN(Signbit, [](In self, Out out) { at::signbit_out(out, self); });
ACLNN(IsInTensorScalar, [](In element, Scalar test, bool assume_unique, bool invert, Out out) {
  at::isin_out(out, element, test, assume_unique, invert);
});
ACLNN(IsInScalarTensor, [](Scalar element, In test, bool assume_unique, bool invert, Out out) {
  at::isin_out(out, element, test, assume_unique, invert);
});
ACLNN(SWhere, [](In condition, In self, In other, Out out) { assign(out, at::where(condition, self, other)); });
