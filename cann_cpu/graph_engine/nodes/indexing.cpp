// SPDX-License-Identifier: Apache-2.0
// Gathering, scattering, sorting.
#include "table.h"

#include <ATen/core/List.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

namespace cann_cpu::graph {
namespace {

// The slices of x that the indices (of any shape) name along an axis; a negative index counts from the end.
Outputs gather(const NodeCall& n, int64_t axis) {
  refuse_unless(n.integer("batch_dims", 0) == 0, "a gather with batch dimensions");
  const at::Tensor& x = n.in(0);
  const at::Tensor& indices = n.in(1);
  axis = axis < 0 ? axis + x.dim() : axis;
  at::Tensor flat = indices.reshape({-1}).to(at::kLong);
  if (indices.numel() > 0) {
    flat = at::where(flat.lt(0), flat.add(x.size(axis)), flat);
  }
  auto shape = x.sizes().vec();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, indices.sizes().begin(), indices.sizes().end());
  return at::index_select(x, axis, flat).reshape(shape);
}

Outputs index_by_tensor(NodeCall& n) {
  c10::List<std::optional<at::Tensor>> indices;
  size_t next = 1;
  for (const int64_t given : n.integers("indices_mask", {})) {
    indices.push_back(given != 0 ? std::optional(n.in(next++)) : std::nullopt);
  }
  return at::index(n.in(0), indices);
}

Outputs scatter_elements(NodeCall& n) {
  const std::string reduction = n.text("reduction", "none");
  const int64_t axis = n.integer("axis", 0);
  const at::Tensor index = n.in(1).to(at::kLong);
  if (reduction == "none") {
    return at::scatter(n.in(0), axis, index, n.in(2));
  }
  if (reduction == "add") {
    return at::scatter_add(n.in(0), axis, index, n.in(2));
  }
  refuse_unless(reduction == "mul", "this reduction");
  return at::scatter_reduce(n.in(0), axis, index, n.in(2), "prod");
}

// Writes rows: the last dimension of the indices addresses the first dimensions of x.
Outputs scatter_rows(NodeCall& n) {
  c10::List<std::optional<at::Tensor>> indices;
  const at::Tensor all = n.in(1).to(at::kLong);
  for (int64_t d = 0; d < all.size(-1); ++d) {
    indices.push_back(all.select(-1, d));
  }
  at::Tensor& x = n.referenced(0);
  x.index_put_(indices, n.in(2));
  return x;
}

at::Scalar alpha(const NodeCall& n, size_t i) { return n.has(i) ? scalar(n.in(i)) : at::Scalar(1); }

// GE's indices have 32 bits.
Outputs with_int_index(std::tuple<at::Tensor, at::Tensor> value_and_index) {
  auto& [value, index] = value_and_index;
  return std::tuple(value, index.to(at::kInt));
}

}  // namespace

const NodeTable kIndexingNodes = {
    {"Gather", [](NodeCall& n) { return gather(n, 0); }},
    {"GatherV2", [](NodeCall& n) { return gather(n, n.integer(2)); }},
    {"GatherElements",
     [](NodeCall& n) -> Outputs { return at::gather(n.in(0), n.integer("dim", 0), n.in(1).to(at::kLong)); }},
    {"IndexByTensor", index_by_tensor},
    {"EmbeddingDenseGrad",
     [](NodeCall& n) -> Outputs {
       return at::embedding_dense_backward(n.in(0), n.in(1).to(at::kLong), n.integer("num_weights"),
                                           n.integer("padding_idx", -1), n.flag("scale_grad_by_freq", false));
     }},
    {"InplaceIndexAdd",
     [](NodeCall& n) -> Outputs { return at::index_add(n.in(0), n.integer("axis"), n.in(1), n.in(2), alpha(n, 3)); }},
    {"ScatterElements", scatter_elements},
    {"ScatterElementsV2", scatter_elements},
    {"ScatterNdUpdate", scatter_rows},
    {"TopKV2",
     [](NodeCall& n) {
       return with_int_index(
           at::topk(n.in(0), n.integer(1), n.integer("dim", -1), n.flag("largest", true), n.flag("sorted", true)));
     }},
    {"Sort",
     [](NodeCall& n) {
       return with_int_index(
           at::sort(n.in(0), n.flag("stable", false), n.integer("axis", -1), n.flag("descending", false)));
     }},
    {"SearchSorted",
     [](NodeCall& n) -> Outputs {
       const auto sorter = n.has(2) ? std::optional(n.in(2)) : std::nullopt;
       return at::searchsorted(n.in(0), n.in(1), n.dtype("dtype", at::kLong) == at::kInt, n.flag("right", false),
                               std::nullopt, sorter);
     }},
    {"NonZero",
     [](NodeCall& n) -> Outputs {
       const at::Tensor found = at::nonzero(n.in(0)).to(n.dtype("dtype", at::kLong));
       return n.flag("transpose", false) ? found.t() : found;
     }},
};

}  // namespace cann_cpu::graph
