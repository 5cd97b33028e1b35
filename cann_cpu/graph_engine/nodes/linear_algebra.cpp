// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include "nodes/aclnn.h"

#include <ATen/ExpandUtils.h>

namespace cann_cpu::graph {
namespace {

at::Tensor transposed_if(bool transpose, const at::Tensor& x) { return transpose ? x.transpose(-2, -1) : x; }

// Vectors are a row before, and a column behind, a matrix.
std::vector<int64_t> product_shape(const at::Tensor& a, const at::Tensor& b) {
  const auto batch = [](const at::Tensor& x) { return x.sizes().slice(0, std::max<int64_t>(x.dim() - 2, 0)); };
  auto shape = at::infer_size(batch(a), batch(b));
  if (a.dim() > 1) {
    shape.push_back(a.size(-2));
  }
  if (b.dim() > 1) {
    shape.push_back(b.size(-1));
  }
  return shape;
}

// A product with an optional bias as input 2.
NodeFunction product(const char* transpose_1, const char* transpose_2) {
  return [=](NodeCall& n) -> Outputs {
    n.only("offset_x", 0);
    const at::Tensor a = transposed_if(n.flag(transpose_1, false), n.in(0));
    const at::Tensor b = transposed_if(n.flag(transpose_2, false), n.in(1));
    const auto y = [&](NodeCall&) { return new_tensor(product_shape(a, b), a.scalar_type()); };
    const at::Tensor bias = n.has(2) ? n.in(2) : at::Tensor();
    if (bias.defined() && a.dim() == 2 && b.dim() == 2) {
      return aclnn("Addmm", value(bias), value(a), value(b), value(kOne), value(kOne), out(y),
                   plain(kKeepPrecision))(n);
    }
    const Outputs plain_product = aclnn("Matmul", value(a), value(b), out(y), plain(kKeepPrecision))(n);
    return bias.defined() ? aclnn("Add", value(plain_product[0]), value(bias), value(kOne), out(y))(n) : plain_product;
  };
}

}  // namespace

const NodeTable kLinearAlgebraNodes = {
    {"MatMul", product("transpose_x1", "transpose_x2")},   {"MatMulV2", product("transpose_x1", "transpose_x2")},
    {"MatMulV3", product("transpose_x1", "transpose_x2")}, {"BatchMatMul", product("adj_x1", "adj_x2")},
    {"BatchMatMulV2", product("adj_x1", "adj_x2")},        {"BatchMatMulV3", product("adj_x1", "adj_x2")},
};

}  // namespace cann_cpu::graph
