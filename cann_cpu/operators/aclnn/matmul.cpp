// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <c10/util/strides.h>

#include "table.h"

using namespace cann_cpu;

namespace {

// The dtype that matrices are multiplied in. Where oneDNN has no products of a half type, as without AVX-512, ATen's
// own loops take many times as long as converting to float and back.
at::ScalarType product_dtype(at::ScalarType dtype) {
  static const auto supported = [](const char* question) {
    const auto schema = c10::Dispatcher::singleton().findSchema({question, ""});
    return schema.has_value() && schema->typed<bool()>().call();
  };
  static const bool bfloat16 = supported("mkldnn::_is_mkldnn_bf16_supported");
  static const bool float16 = supported("mkldnn::_is_mkldnn_fp16_supported");
  const bool slow = (dtype == at::kBFloat16 && !bfloat16) || (dtype == at::kHalf && !float16);
  return slow ? at::kFloat : dtype;
}

at::Tensor in_product_dtype(const at::Tensor& tensor) { return tensor.to(product_dtype(tensor.scalar_type())); }

// A small factor, row by row. The libraries below ATen add in another order where a factor of a small product is
// transposed in memory, and what a graph has saved for its backward pass does not lie as it does eagerly. The factors
// of large products they pack first; a copy of those would cost time and change no bits, but for products of a few rows
// or columns, where the order of a large factor is left as it is.
at::Tensor factor(const at::Tensor& tensor) {
  constexpr int64_t kSmall = 1 << 16;
  const at::Tensor matrix = in_product_dtype(tensor);
  if (matrix.numel() > kSmall) return matrix;
  // ATen looks at the strides of dimensions of size 1, too.
  return matrix.contiguous().as_strided(matrix.sizes(), c10::contiguous_strides(matrix.sizes()));
}

void check_product(const at::Tensor& self, const at::Tensor& other, int64_t rank) {
  TORCH_CHECK(self.dim() == rank && other.dim() == rank, "expected two tensors of rank ", rank, ", got shapes ",
              self.sizes(), " and ", other.sizes());
  TORCH_CHECK(self.size(-1) == other.size(-2), "the columns of ", self.sizes(), " do not match the rows of ",
              other.sizes());
  TORCH_CHECK(rank == 2 || self.size(0) == other.size(0), "the batch sizes of ", self.sizes(), " and ", other.sizes(),
              " differ");
}

// Has products written to out, or to a tensor of their dtype that is rounded to out.
template <class Write>
void multiply(Out out, Write write) {
  const auto dtype = product_dtype(out.scalar_type());
  if (dtype == out.scalar_type()) return write(out);
  at::Tensor sums = at::empty(out.sizes(), out.options().dtype(dtype));
  write(sums);
  out.copy_(sums);
}

}  // namespace

ACLNN_CHECKED(
    Mm, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 2); },
    [](In self, In mat2, Out out, CubeMathType) {
      multiply(out, [&](Out sums) { at::mm_out(sums, factor(self), factor(mat2)); });
    });
ACLNN_CHECKED(
    BatchMatMul, [](In self, In mat2, Out, CubeMathType) { check_product(self, mat2, 3); },
    [](In self, In mat2, Out out, CubeMathType) {
      multiply(out, [&](Out sums) { at::bmm_out(sums, factor(self), factor(mat2)); });
    });
ACLNN(Matmul, [](In self, In mat2, Out out, CubeMathType) {
  multiply(out, [&](Out sums) { at::matmul_out(sums, factor(self), factor(mat2)); });
});
ACLNN(Mv, [](In self, In vec, Out out, CubeMathType) {
  multiply(out, [&](Out sums) { at::mv_out(sums, factor(self), in_product_dtype(vec)); });
});

namespace {

// out = beta * self + alpha * (first x second), where out may be self.
template <auto sum>
void add_product(Out out, In self, In first, In second, Scalar beta, Scalar alpha) {
  multiply(out, [&](Out sums) { sum(sums, in_product_dtype(self), factor(first), factor(second), beta, alpha); });
}

using AddProduct = at::Tensor& (*)(Out, In, In, In, Scalar, Scalar);
constexpr AddProduct kAddmm = at::addmm_out, kBaddbmm = at::baddbmm_out, kAddbmm = at::addbmm_out,
                     kAddmv = at::addmv_out;

}  // namespace

ACLNN_CHECKED(
    Addmm, [](In, In mat1, In mat2, Scalar, Scalar, Out, CubeMathType) { check_product(mat1, mat2, 2); },
    [](In self, In mat1, In mat2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      add_product<kAddmm>(out, self, mat1, mat2, beta, alpha);
    });
ACLNN_CHECKED(
    InplaceAddmm, [](Out, In mat1, In mat2, Scalar, Scalar, CubeMathType) { check_product(mat1, mat2, 2); },
    [](Out self, In mat1, In mat2, Scalar beta, Scalar alpha, CubeMathType) {
      add_product<kAddmm>(self, self, mat1, mat2, beta, alpha);
    });
ACLNN_CHECKED(
    Baddbmm, [](In, In batch1, In batch2, Scalar, Scalar, Out, CubeMathType) { check_product(batch1, batch2, 3); },
    [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
      add_product<kBaddbmm>(out, self, batch1, batch2, beta, alpha);
    });
ACLNN_CHECKED(
    InplaceBaddbmm, [](Out, In batch1, In batch2, Scalar, Scalar, CubeMathType) { check_product(batch1, batch2, 3); },
    [](Out self, In batch1, In batch2, Scalar beta, Scalar alpha, CubeMathType) {
      add_product<kBaddbmm>(self, self, batch1, batch2, beta, alpha);
    });
ACLNN(Addbmm, [](In self, In batch1, In batch2, Scalar beta, Scalar alpha, Out out, CubeMathType) {
  add_product<kAddbmm>(out, self, batch1, batch2, beta, alpha);
});
ACLNN(Addmv, [](In self, In mat, In vec, Scalar alpha, Scalar beta, Out out, CubeMathType) {
  add_product<kAddmv>(out, self, mat, vec, beta, alpha);
});

ACLNN(Dot, [](In self, In other, Out out) { at::dot_out(out, self, other); });
ACLNN(Addr, [](In self, In vec1, In vec2, Scalar beta, Scalar alpha, Out out) {
  at::addr_out(out, self, vec1, vec2, beta, alpha);
});
ACLNN(InplaceAddr, [](Out self, In vec1, In vec2, Scalar beta, Scalar alpha) { self.addr_(vec1, vec2, beta, alpha); });
