// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include "table.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>

#include "cann_cpu/factor.h"

namespace cann_cpu::graph {
namespace {

at::Tensor transposed_if(bool transpose, const at::Tensor& x) { return factor(transpose ? x.transpose(-2, -1) : x); }

// A product with an optional bias as input 2.
Outputs product(const NodeCall& n, const char* transpose_1, const char* transpose_2) {
  const at::Tensor x1 = transposed_if(n.flag(transpose_1, false), n.in(0));
  const at::Tensor x2 = transposed_if(n.flag(transpose_2, false), n.in(1));
  const auto dtype = n.in(0).scalar_type();
  if (!n.has(2)) {
    return at::matmul(x1, x2).to(dtype);
  }
  if (x1.dim() == 2 && x2.dim() == 2) {
    return at::addmm(in_product_dtype(n.in(2)), x1, x2).to(dtype);
  }
  return at::add(at::matmul(x1, x2).to(dtype), n.in(2));
}

Outputs matmul(NodeCall& n) { return product(n, "transpose_x1", "transpose_x2"); }
Outputs batch_matmul(NodeCall& n) { return product(n, "adj_x1", "adj_x2"); }

}  // namespace

const NodeTable kLinearAlgebraNodes = {
    {"MatMul", matmul},
    {"MatMulV2", matmul},
    {"MatMulV3", matmul},
    {"BatchMatMul", batch_matmul},
    {"BatchMatMulV2", batch_matmul},
    {"BatchMatMulV3", batch_matmul},
};

}  // namespace cann_cpu::graph
