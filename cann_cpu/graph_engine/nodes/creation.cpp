// SPDX-License-Identifier: Apache-2.0
// New tensors, and tensors that hold shapes.
#include "table.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace cann_cpu::graph {
namespace {

Outputs range(NodeCall& n) {
  const auto dtype =
      at::promoteTypes(at::promoteTypes(n.in(0).scalar_type(), n.in(1).scalar_type()), n.in(2).scalar_type());
  return at::arange(scalar(n.in(0)), scalar(n.in(1)), scalar(n.in(2)), at::TensorOptions().dtype(dtype));
}

// Whole bounds give a tensor of floats.
Outputs linear_space(NodeCall& n) {
  const auto dtype = n.in(0).scalar_type();
  const auto result = at::isFloatingType(dtype) ? dtype : at::kFloat;
  return at::linspace(scalar(n.in(0)), scalar(n.in(1)), n.integer(2), at::TensorOptions().dtype(result));
}

}  // namespace

const NodeTable kCreationNodes = {
    {"Fill",
     [](NodeCall& n) -> Outputs {
       return at::empty(n.integers(0), n.in(1).options()).fill_(without_dimensions(n.in(1)));
     }},
    // Zeros, so that what torchair builds on an empty tensor does not depend on what the memory held.
    {"Empty",
     [](NodeCall& n) -> Outputs {
       return at::zeros(n.integers(0), at::TensorOptions().dtype(n.dtype("dtype", at::kInt)));
     }},
    {"ZerosLike", [](NodeCall& n) -> Outputs { return at::zeros_like(n.in(0)); }},
    {"OnesLike", [](NodeCall& n) -> Outputs { return at::ones_like(n.in(0)); }},
    {"Range", range},
    {"LinSpace", linear_space},
    {"Eye",
     [](NodeCall& n) -> Outputs {
       refuse_unless(n.integers("batch_shape", {}).empty(), "a batch of unit matrices");
       const int64_t rows = n.integer("num_rows");
       const int64_t columns = n.integer("num_columns", 0);
       return at::eye(rows, columns == 0 ? rows : columns, at::TensorOptions().dtype(n.dtype("dtype", at::kFloat)));
     }},
    {"Shape",
     [](NodeCall& n) -> Outputs {
       return at::tensor(n.in(0).sizes(), at::TensorOptions().dtype(n.dtype("dtype", at::kInt)));
     }},
    {"Size",
     [](NodeCall& n) -> Outputs {
       return at::scalar_tensor(n.in(0).numel(), at::TensorOptions().dtype(n.dtype("dtype", at::kInt)));
     }},
    {"Rank",
     [](NodeCall& n) -> Outputs { return at::scalar_tensor(n.in(0).dim(), at::TensorOptions().dtype(at::kInt)); }},
};

}  // namespace cann_cpu::graph
