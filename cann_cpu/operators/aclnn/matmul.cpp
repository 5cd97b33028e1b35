// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>

#include "cann_cpu/factor.h"
#include "table.h"

using namespace cann_cpu;

namespace {

void check_product(const at::Tensor& self, const at::Tensor& other, int64_t rank) {
  TORCH_CHECK(self.dim() == rank && other.dim() == rank, "expected two tensors of rank ", rank, ", got shapes ",
              self.sizes(), " and ", other.sizes());
  TORCH_CHECK(self.size(-1) == other.size(-2), "the columns of ", self.sizes(), " do not match the rows of ",
              other.sizes());
  TORCH_CHECK(rank == 2 || self.size(0) == other.size(0), "the batch sizes of ", self.sizes(), " and ", other.sizes(),
              " differ");
}

}  // namespace

ACLNN_CHECKED(
    Mm, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 2); },
    [](In self, In mat2, Out out, CubeMathType) { at::mm_out(out, factor(self), factor(mat2)); });
ACLNN_CHECKED(
    BatchMatMul, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 3); },
    [](In self, In mat2, Out out, CubeMathType) { at::bmm_out(out, factor(self), factor(mat2)); });
ACLNN_CHECKED(
    Addmm, [](In, In mat1, In mat2, Scalar, Scalar, Out, CubeMathType) { check_product(mat1, mat2, 2); },
    [](In self, In mat1, In mat2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      at::addmm_out(out, self, factor(mat1), factor(mat2), beta, alpha);
    });
ACLNN_CHECKED(
    InplaceAddmm, [](Out, In mat1, In mat2, Scalar, Scalar, CubeMathType) { check_product(mat1, mat2, 2); },
    [](Out self, In mat1, In mat2, Scalar beta, Scalar alpha, CubeMathType) {
      self.addmm_(factor(mat1), factor(mat2), beta, alpha);
    });
ACLNN_CHECKED(
    Baddbmm, [](In, In batch1, In batch2, Scalar, Scalar, Out, CubeMathType) { check_product(batch1, batch2, 3); },
    [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      at::baddbmm_out(out, self, factor(batch1), factor(batch2), beta, alpha);
    });
ACLNN_CHECKED(
    InplaceBaddbmm, [](Out, In batch1, In batch2, Scalar, Scalar, CubeMathType) { check_product(batch1, batch2, 3); },
    [](Out self, In batch1, In batch2, Scalar beta, Scalar alpha, CubeMathType) {
      self.baddbmm_(factor(batch1), factor(batch2), beta, alpha);
    });
ACLNN(Matmul, [](In self, In mat2, Out out, CubeMathType) { at::matmul_out(out, factor(self), factor(mat2)); });
ACLNN(Addbmm, [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
  at::addbmm_out(out, self, factor(batch1), factor(batch2), beta, alpha);
});
ACLNN(Addmv, [](In self, In mat, In vec, Scalar alpha, Scalar beta, Out out, CubeMathType) {
  at::addmv_out(out, self, factor(mat), vec, beta, alpha);
});
ACLNN(Mv, [](In self, In vec, Out out, CubeMathType) { at::mv_out(out, factor(self), vec); });
ACLNN(Dot, [](In self, In other, Out out) { at::dot_out(out, self, other); });
ACLNN(Addr, [](In self, In vec1, In vec2, Scalar beta, Scalar alpha, Out out) {
  at::addr_out(out, self, vec1, vec2, beta, alpha);
});
ACLNN(InplaceAddr, [](Out self, In vec1, In vec2, Scalar beta, Scalar alpha) { self.addr_(vec1, vec2, beta, alpha); });
