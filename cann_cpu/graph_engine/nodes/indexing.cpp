// SPDX-License-Identifier: Apache-2.0
// Gathering, scattering, sorting.
#include "aclnn.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/List.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>
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

// The indices from input `next` on, a tensor for each that the mask has.
std::vector<at::Tensor> indices(NodeCall& n, const std::vector<int64_t>& mask, size_t next) {
  std::vector<at::Tensor> given;
  for (const int64_t present : mask) given.push_back(present != 0 ? n.in(next++) : at::Tensor());
  return given;
}

Outputs indexed(NodeCall& n, const std::vector<at::Tensor>& given) {
  const at::Tensor& x = n.in(0);
  std::vector<at::Tensor> passed;
  for (const at::Tensor& index : given) {
    // aclnnIndex takes an absent index as an empty tensor of x's dtype.
    passed.push_back(index.defined() ? index : new_tensor({0}, x.scalar_type()));
  }
  const at::Tensor y = new_tensor(indexed_shape(x, given), x.scalar_type());
  return aclnn("Index", in(0), value(passed), out(known(y)))(n);
}

Outputs index_put(NodeCall& n) {
  n.ignore(3);
  n.ignore("_exclude_engines");
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& index : indices(n, n.integers(2), 4)) {
    list.push_back(index.defined() ? std::optional(index) : std::nullopt);
  }
  return at::index_put(n.in(0), list, n.in(1), n.flag("accumulate", false));
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

// How a bag of embeddings is reduced: ATen's number of it.
constexpr int64_t kMaximumOfBag = 2;
int64_t bag_mode(NodeCall& n) {
  constexpr int64_t kModes[] = {1, 0, kMaximumOfBag};
  return kModes[n.choice("mode", {"mean", "sum", "max"})];
}
int64_t bags(NodeCall& n) { return n.in(2).numel() - (n.flag("include_last_offset", false) ? 1 : 0); }
at::Tensor reduced_bags(NodeCall& n) { return new_tensor({bags(n), n.in(0).size(1)}, n.in(0).scalar_type()); }
at::Tensor bag_of_each_index(NodeCall& n) { return new_tensor({n.in(1).numel()}, n.in(1).scalar_type()); }
at::Tensor bag_sizes(NodeCall& n) { return new_tensor({bags(n)}, n.in(1).scalar_type()); }
at::Tensor indices_of_maxima(NodeCall& n) {
  if (bag_mode(n) != kMaximumOfBag) return bag_sizes(n);
  return new_tensor({bags(n), n.in(0).size(1)}, n.in(1).scalar_type());
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

Outputs distinct(std::tuple<at::Tensor, at::Tensor, at::Tensor> values_inverse_counts) {
  auto [values, inverse, counts] = std::move(values_inverse_counts);
  return std::vector<at::Tensor>{values, inverse, counts};
}

// sort_policy: which algorithm the NPU takes.
NodeFunction top_k() {
  return aclnn("Topk", in(0), integer(1), integer("dim", -1), flag("largest", true), flag("sorted", true),
               out(top(own)), out_as(at::kInt, top(wide)), ignore("sort_policy"));
}

}  // namespace

const NodeTable kIndexingNodes = {
    {"Gather", [](NodeCall& n) { return gather_along(n, 0); }},
    {"GatherV2", [](NodeCall& n) { return gather_along(n, n.integer(2)); }},
    {"GatherElements", aclnn("Gather", in(0), integer("dim", 0), in(1, at::kLong),
                             out([](NodeCall& n) { return like(1, n.in(0).scalar_type())(n); }))},
    {"IndexByTensor", [](NodeCall& n) { return indexed(n, indices(n, n.integers("indices_mask", {}), 1)); }},
    // By the aclop path, for instance with the indices of a mask's elements.
    {"Index",
     [](NodeCall& n) {
       n.ignore(2);
       n.ignore("_exclude_engines");
       return indexed(n, indices(n, n.integers(1), 3));
     }},
    {"IndexPutV2", index_put},
    {"Bincount",
     [](NodeCall& n) -> Outputs { return at::bincount(n.in(0), n.in(2), n.integer(1)).to(n.in(2).scalar_type()); }},
    {"EmbeddingDenseGrad",
     aclnn("EmbeddingDenseBackward", in(0), in(1, at::kLong), integer("num_weights"), integer("padding_idx", -1),
           flag("scale_grad_by_freq", false), out(embedding_gradient))},
    {"EmbeddingBag",
     aclnn(
         "EmbeddingBag", in(0), in(1), in(2), flag("scale_grad_by_freq", false),
         [](AclnnCall& c) { plain(bag_mode(c.node))(c); }, flag("sparse", false), optional(3),
         flag("include_last_offset", false), integer("padding_idx", -1), out(reduced_bags), out(bag_of_each_index),
         out(bag_sizes), out(indices_of_maxima)),
     "offsets per_sample_weights", "mode scale_grad_by_freq sparse include_last_offset padding_idx"},
    {"InplaceIndexAdd", aclnn("IndexAdd", in(0), integer("axis"), in(1), in(2), number(3, 1), out(like(0)))},
    {"ScatterElements", scatter_elements()},
    {"ScatterElementsV2", scatter_elements()},
    {"ScatterNdUpdate", aclnn("ScatterNdUpdate", out(referenced(0)), in(1), in(2), ignore("use_locking"))},
    {"Scatter", aclnn("InplaceScatterUpdate", out(referenced(0)), in(1), in(2), integer("axis", 0),
                      only("reduce", std::string("update")))},
    {"TopK", top_k(), "", "sorted largest dim"},
    {"TopKV2", top_k()},
    {"Sort", aclnn("Sort", in(0), flag("stable", false), integer("axis", -1), flag("descending", false), out(like(0)),
                   out_as(at::kInt, indices_like_input))},
    {"SearchSorted", aclnn("SearchSorted", in(0), in(1), narrow_index(), flag("right", false), optional(2),
                           out([](NodeCall& n) { return like(1, n.dtype("dtype", at::kLong))(n); }))},
    // From here on: the shapes of the results are known only afterwards.
    {"NonZero",
     [](NodeCall& n) -> Outputs {
       const at::Tensor found = at::nonzero(n.in(0)).to(n.dtype("dtype", at::kLong));
       return n.flag("transpose", false) ? found.t() : found;
     }},
    {"MaskedSelect", [](NodeCall& n) -> Outputs { return at::masked_select(n.in(0), n.in(1)); }},
    {"UniqueWithCountsAndSorting",
     [](NodeCall& n) -> Outputs {
       const bool counts = n.flag("return_counts", false), inverse = n.flag("return_inverse", false);
       return distinct(at::_unique2(n.in(0), n.flag("sorted", true), inverse || counts, counts));
     }},
    // torch_npu takes the inverse from the last.
    {"UniqueWithCountsExt2",
     [](NodeCall& n) -> Outputs {
       n.ignore("return_inverse");
       const auto [values, inverse, counts] =
           at::unique_dim(n.in(0), n.integer(1), n.flag("sorted", true), /*return_inverse=*/true, true);
       return std::vector<at::Tensor>{values, inverse, counts, inverse};
     }},
    {"UniqueConsecutive",
     [](NodeCall& n) -> Outputs {
       constexpr int64_t kFlattened = 1000;
       const int64_t axis = n.integer("axis", kFlattened);
       const auto dim = axis == kFlattened ? std::nullopt : std::optional<int64_t>(axis);
       return distinct(
           at::unique_consecutive(n.in(0), n.flag("return_idx", false), n.flag("return_counts", false), dim));
     }},
};

}  // namespace cann_cpu::graph
