// SPDX-License-Identifier: Apache-2.0
// Gathering, scattering, sorting.
#include "nodes/aclnn.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/where.h>

namespace cann_cpu::graph {
namespace {

Rule known(at::Tensor tensor) {
  return [=](NodeCall&) { return tensor; };
}

// The slices of x that the indices (of any shape) name along an axis; a negative index counts from the end.
Outputs gather_along(NodeCall& n, int64_t axis) {
  n.only("batch_dims", 0);
  n.only("is_preprocessed", false);
  n.ignore("validate_indices");
  n.ignore("negative_index_support");
  const at::Tensor& x = n.in(0);
  const at::Tensor& indices = n.in(1);
  axis = wrapped(axis, x.dim());
  at::Tensor flat = indices.reshape({-1}).to(at::kLong);
  if (indices.numel() > 0) {
    flat = at::where(flat.lt(0), flat.add(x.size(axis)), flat);
  }
  auto shape = x.sizes().vec();
  shape[axis] = indices.numel();
  const at::Tensor rows = new_tensor(shape, x.scalar_type());
  aclnn("IndexSelect", in(0), plain(axis), value(flat), out(known(rows)))(n);
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, indices.sizes().begin(), indices.sizes().end());
  return rows.reshape(shape);
}

// The indices, broadcast, take the place of the dimensions that they index where these are neighbours, else the first.
std::vector<int64_t> indexed_shape(const at::Tensor& x, const std::vector<at::Tensor>& indices) {
  std::vector<int64_t> found, kept;
  size_t first = 0, count = 0, last = 0;
  for (size_t d = 0; d < static_cast<size_t>(x.dim()); ++d) {
    if (d < indices.size() && indices[d].defined()) {
      found = at::infer_size(found, indices[d].sizes());
      first = count++ == 0 ? d : first;
      last = d;
    } else {
      kept.push_back(x.size(static_cast<int64_t>(d)));
    }
  }
  const size_t place = last - first + 1 == count ? first : 0;
  kept.insert(kept.begin() + static_cast<ptrdiff_t>(place), found.begin(), found.end());
  return kept;
}

Outputs index_by_tensor(NodeCall& n) {
  const at::Tensor& x = n.in(0);
  std::vector<at::Tensor> given, passed;
  size_t next = 1;
  for (const int64_t present : n.integers("indices_mask", {})) {
    given.push_back(present != 0 ? n.in(next++) : at::Tensor());
    // aclnnIndex takes an absent index as an empty tensor of x's dtype.
    passed.push_back(present != 0 ? given.back() : new_tensor({0}, x.scalar_type()));
  }
  const at::Tensor y = new_tensor(indexed_shape(x, given), x.scalar_type());
  return aclnn("Index", in(0), value(passed), out(known(y)))(n);
}

NodeFunction scatter_elements() {
  return [](NodeCall& n) -> Outputs {
    static const NodeFunction add =
        aclnn("ScatterAdd", in(0), integer("axis", 0), in(1, at::kLong), in(2), out(like(0)));
    static const NodeFunction other = aclnn("Scatter", in(0), integer("axis", 0), in(1, at::kLong), in(2),
                                            choice("reduction", {"none", "add", "mul"}), out(like(0)));
    return (n.text("reduction", "none") == "add" ? add : other)(n);
  };
}

at::Tensor embedding_gradient(NodeCall& n) {
  return new_tensor({n.integer("num_weights"), n.in(0).size(-1)}, n.in(0).scalar_type());
}

// GE's indices have 32 bits.
at::Tensor indices_like_input(NodeCall& n) { return like(0, at::kLong)(n); }
Rule top(at::ScalarType (*dtype)(NodeCall&)) {
  return [=](NodeCall& n) {
    auto shape = n.in(0).sizes().vec();
    if (!shape.empty()) {
      shape[wrapped(n.integer("dim", -1), shape.size())] = n.integer(1);
    }
    return new_tensor(shape, dtype(n));
  };
}
at::ScalarType own(NodeCall& n) { return n.in(0).scalar_type(); }
at::ScalarType wide(NodeCall&) { return at::kLong; }

Parameter narrow_index() {
  return [](AclnnCall& c) { plain(c.node.dtype("dtype", at::kLong) == at::kInt)(c); };
}

}  // namespace

const NodeTable kIndexingNodes = {
    {"Gather", [](NodeCall& n) { return gather_along(n, 0); }},
    {"GatherV2", [](NodeCall& n) { return gather_along(n, n.integer(2)); }},
    {"GatherElements", aclnn("Gather", in(0), integer("dim", 0), in(1, at::kLong),
                             out([](NodeCall& n) { return like(1, n.in(0).scalar_type())(n); }))},
    {"IndexByTensor", index_by_tensor},
    {"EmbeddingDenseGrad",
     aclnn("EmbeddingDenseBackward", in(0), in(1, at::kLong), integer("num_weights"), integer("padding_idx", -1),
           flag("scale_grad_by_freq", false), out(embedding_gradient))},
    {"InplaceIndexAdd", aclnn("IndexAdd", in(0), integer("axis"), in(1), in(2), number(3, 1), out(like(0)))},
    {"ScatterElements", scatter_elements()},
    {"ScatterElementsV2", scatter_elements()},
    {"ScatterNdUpdate", aclnn("ScatterNdUpdate", out(referenced(0)), in(1), in(2), ignore("use_locking"))},
    {"Scatter", aclnn("InplaceScatterUpdate", out(referenced(0)), in(1), in(2), integer("axis", 0),
                      only("reduce", std::string("update")))},
    // sort_policy: which algorithm the NPU takes.
    {"TopKV2", aclnn("Topk", in(0), integer(1), integer("dim", -1), flag("largest", true), flag("sorted", true),
                     out(top(own)), out_as(at::kInt, top(wide)), ignore("sort_policy"))},
    {"Sort", aclnn("Sort", in(0), flag("stable", false), integer("axis", -1), flag("descending", false), out(like(0)),
                   out_as(at::kInt, indices_like_input))},
    {"SearchSorted", aclnn("SearchSorted", in(0), in(1), narrow_index(), flag("right", false), optional(2),
                           out([](NodeCall& n) { return like(1, n.dtype("dtype", at::kLong))(n); }))},
    // Its result's shape is known only afterwards.
    {"NonZero",
     [](NodeCall& n) -> Outputs {
       const at::Tensor found = at::nonzero(n.in(0)).to(n.dtype("dtype", at::kLong));
       return n.flag("transpose", false) ? found.t() : found;
     }},
};

}  // namespace cann_cpu::graph
