// SPDX-License-Identifier: Apache-2.0
// Decompositions and solutions of linear systems.
#include <ATen/ops/inverse.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/slogdet.h>
#include <ATen/ops/triangular_solve.h>

#include "table.h"

using namespace cann_cpu;

ACLNN(Inverse, [](In self, Out out) { at::inverse_out(out, self); });
ACLNN(LinalgCholesky, [](In self, bool upper, Out out) { assign(out, at::linalg_cholesky(self, upper)); });
ACLNN(LinalgCross, [](In self, In other, int64_t dim, Out out) { at::linalg_cross_out(out, self, other, dim); });
ACLNN(LinalgQr, [](In self, int64_t mode, Out q, Out r) {
  constexpr const char* kModes[] = {"reduced", "complete", "r"};
  TORCH_CHECK(0 <= mode && mode < 3, "mode must be 0 (reduced), 1 (complete) or 2 (r), got ", mode);
  auto [q_value, r_value] = at::linalg_qr(self, kModes[mode]);
  if (mode != 2) assign(q, q_value);
  assign(r, r_value);
});
ACLNN(Svd, [](In self, bool full_matrices, bool compute_uv, Out s, Out u, Out v) {
  if (!compute_uv) return assign(s, at::linalg_svdvals(self));
  auto [u_value, s_value, vh_value] = at::linalg_svd(self, full_matrices);
  assign(u, u_value);
  assign(s, s_value);
  assign(v, vh_value.mH());
});
ACLNN(Slogdet, [](In self, Out sign, Out logarithm) {
  auto [sign_value, logarithm_value] = at::slogdet(self);
  assign(sign, sign_value);
  assign(logarithm, logarithm_value);
});
ACLNN(TriangularSolve, [](In b, In a, bool upper, bool transpose, bool unitriangular, Out x, Out a_copy) {
  auto [solution, coefficient] = at::triangular_solve(b, a, upper, transpose, unitriangular);
  assign(x, solution);
  assign(a_copy, coefficient);
});
