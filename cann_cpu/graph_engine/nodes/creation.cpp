// SPDX-License-Identifier: Apache-2.0
// New tensors, and tensors that hold shapes.
#include "aclnn.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>

namespace cann_cpu::graph {
namespace {

at::Tensor range(NodeCall& n) {
  const auto start = n.number(0), limit = n.number(1), delta = n.number(2);
  const auto dtype =
      at::promoteTypes(at::promoteTypes(n.in(0).scalar_type(), n.in(1).scalar_type()), n.in(2).scalar_type());
  const double distance = at::isIntegralType(dtype, /*includeBool=*/true)
                              ? static_cast<double>(limit.toLong() - start.toLong())
                              : limit.toDouble() - start.toDouble();
  return new_tensor({static_cast<int64_t>(std::ceil(distance / delta.toDouble()))}, dtype);
}

// Whole bounds give a tensor of floats.
at::Tensor linear_space(NodeCall& n) {
  const auto dtype = n.in(0).scalar_type();
  return new_tensor({n.integer(2)}, at::isFloatingType(dtype) ? dtype : at::kFloat);
}

Outputs unit_matrix(NodeCall& n) {
  n.only("batch_shape", std::vector<int64_t>());
  const int64_t rows = n.integer("num_rows"), given = n.integer("num_columns", 0);
  const int64_t columns = given == 0 ? rows : given;
  const at::Tensor y = new_tensor({rows, columns}, n.dtype("dtype", at::kFloat));
  return aclnn("Eye", plain(rows), plain(columns), out([=](NodeCall&) { return y; }))(n);
}

at::Tensor filled(NodeCall& n) { return new_tensor(n.integers(0), n.in(1).scalar_type()); }

at::TensorOptions of_dtype(const NodeCall& n) { return at::TensorOptions().dtype(n.dtype("dtype", at::kInt)); }

}  // namespace

const NodeTable kCreationNodes = {
    // A prefetch into the cache of the NPU, which has no results.
    {"Cmo",
     [](NodeCall& n) -> Outputs {
       n.only("type", int64_t{6});
       n.ignore(0);
       n.ignore("max_size");
       n.ignore("offset");
       return std::vector<at::Tensor>{};
     },
     "", "type offset"},
    {"Fill", aclnn("InplaceFillTensor", out(filled), in(1))},
    // Zeros whatever "init" says, so that what torchair builds on an empty tensor does not depend on what the memory
    // held.
    {"Empty", aclnn("InplaceZero", ignore("init"), out(shaped(0, "dtype", at::kInt)))},
    {"ZerosLike", aclnn("InplaceZero", out(like(0)))},
    {"OnesLike", aclnn("InplaceOne", out(like(0)))},
    {"Range", aclnn("Arange", number(0), number(1), number(2), out(range))},
    {"LinSpace", aclnn("Linspace", number(0), number(1), integer(2), out(linear_space))},
    {"Eye", unit_matrix},
    {"Shape", [](NodeCall& n) -> Outputs { return at::tensor(n.in(0).sizes(), of_dtype(n)); }},
    {"Size", [](NodeCall& n) -> Outputs { return at::scalar_tensor(n.in(0).numel(), of_dtype(n)); }},
    {"Rank", [](NodeCall& n) -> Outputs { return at::scalar_tensor(n.in(0).dim(), at::kInt); }},
};

}  // namespace cann_cpu::graph
