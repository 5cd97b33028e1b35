// SPDX-License-Identifier: Apache-2.0
// Reading and writing elements by index and by mask.
#include <ATen/TensorIterator.h>
#include <ATen/core/List.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/take.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <vector>

#include "cann_cpu/deterministic.h"
#include "checks.h"

using namespace cann_cpu;

namespace {

// An absent index comes as an empty tensor of self's dtype.
c10::List<std::optional<at::Tensor>> optional_indices(In self, Tensors indices) {
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& index : indices) {
    const bool absent = index.numel() == 0 && index.scalar_type() == self.scalar_type();
    list.push_back(absent ? std::nullopt : std::optional<at::Tensor>(index));
  }
  return list;
}

// Among int64 indices, an empty one cannot be distinguished from an absent one. A call has at least one index.
bool select_nothing(const c10::List<std::optional<at::Tensor>>& indices) {
  bool all_absent = true;
  for (const std::optional<at::Tensor>& index : indices) {
    if (index.has_value() && index->numel() == 0) return true;
    all_absent &= !index.has_value();
  }
  return all_absent;
}

// Writes elements that may be the same ones; several of ATen's threads do so in any order. With ACL_OPT_DETERMINISTIC
// it is one thread: what runs in one of those threads gets no others.
void write_elements(c10::function_ref<void()> write) {
  if (!is_deterministic()) return write();
  const at::Tensor pair = at::empty({2}, at::kChar);
  at::TensorIterator::borrowing_nullary_op(pair).for_each(
      [&](char** data, const int64_t*, int64_t, int64_t) {
        if (data[0] == pair.const_data_ptr()) write();
      },
      /*grain_size=*/1);
}

// out as a copy of self to write into; self and out may be the same memory.
void start_from(In self, Out out) {
  TORCH_CHECK(self.sizes() == out.sizes(), "self has shape ", self.sizes(), ", the given output has shape ",
              out.sizes());
  if (self.data_ptr() != out.data_ptr() || self.strides() != out.strides()) out.copy_(self);
}

// The three values of aclnnScatter's reduction.
template <class Source>
void scatter(Out out, int64_t dim, In index, const Source& source, int64_t reduction) {
  switch (reduction) {
    case 0:
      out.scatter_(dim, index, source);
      return;
    case 1:
      out.scatter_(dim, index, source, "add");
      return;
    case 2:
      out.scatter_(dim, index, source, "multiply");
      return;
    default:
      TORCH_CHECK(false, "reduction must be 0 (none), 1 (add) or 2 (multiply), got ", reduction);
  }
}

// The values of aclnnScatterReduce's reduction; ATen has no name for the first, which replaces.
void scatter_reduce(Out out, int64_t dim, In index, In source, int64_t reduction, bool include_self) {
  constexpr std::array kNames{"", "sum", "prod", "amax", "amin", "mean"};
  TORCH_CHECK(0 <= reduction && reduction < static_cast<int64_t>(kNames.size()), "reduction must be 0 to 5, got ",
              reduction);
  if (reduction == 0) {
    out.scatter_(dim, index, source);
  } else {
    out.scatter_reduce_(dim, index, source, kNames[reduction], include_self);
  }
}

}  // namespace

ACLNN_OF_VALUES(Index, [](In self, Tensors indices, Out out) {
  if (out.numel() > 0) at::index_out(out, self, optional_indices(self, indices));
});
ACLNN_OF_VALUES(IndexPutImpl, [](Out self, Tensors indices, In values, bool accumulate, bool unsafe) {
  const auto list = optional_indices(self, indices);
  if (select_nothing(list)) return;
  write_elements([&] { at::_index_put_impl_(self, list, values, accumulate, unsafe); });
});
ACLNN(IndexSelect, [](In self, int64_t dim, In index, Out out) { at::index_select_out(out, self, dim, index); });
ACLNN(IndexAdd, [](In self, int64_t dim, In index, In source, Scalar alpha, Out out) {
  start_from(self, out);
  out.index_add_(dim, index, source, alpha);
});
ACLNN(IndexCopy, [](In self, int64_t dim, In index, In source, Out out) {
  start_from(self, out);
  write_elements([&] { out.index_copy_(dim, index, source); });
});
ACLNN(InplaceIndexCopy, [](Out self, int64_t dim, In index, In source) {
  write_elements([&] { self.index_copy_(dim, index, source); });
});
ACLNN(IndexFill, [](In self, int64_t dim, In index, Scalar value, Out out) {
  start_from(self, out);
  out.index_fill_(dim, index.to(at::kLong), value);
});
ACLNN(InplaceIndexFill,
      [](Out self, int64_t dim, In index, Scalar value) { self.index_fill_(dim, index.to(at::kLong), value); });
ACLNN(IndexFillTensor, [](In self, int64_t dim, Ints index, Scalar value, Out out) {
  start_from(self, out);
  out.index_fill_(dim, at::tensor(index), value);
});
ACLNN(InplaceIndexFillTensor,
      [](Out self, int64_t dim, Ints index, Scalar value) { self.index_fill_(dim, at::tensor(index), value); });
ACLNN(Take, [](In self, In index, Out out) { at::take_out(out, self, index); });
ACLNN(InplacePut, [](Out self, In index, In source, bool accumulate) {
  write_elements([&] { self.put_(index, source, accumulate); });
});

ACLNN(Gather, [](In self, int64_t dim, In index, Out out) { at::gather_out(out, self, dim, index); });
ACLNN(Scatter, [](In self, int64_t dim, In index, In source, int64_t reduction, Out out) {
  start_from(self, out);
  scatter(out, dim, index, source, reduction);
});
ACLNN(ScatterValue, [](In self, int64_t dim, In index, Scalar value, int64_t reduction, Out out) {
  start_from(self, out);
  scatter(out, dim, index, value, reduction);
});
ACLNN(InplaceScatter, [](Out self, int64_t dim, In index, In source, int64_t reduction) {
  scatter(self, dim, index, source, reduction);
});
ACLNN(InplaceScatterValue, [](Out self, int64_t dim, In index, Scalar value, int64_t reduction) {
  scatter(self, dim, index, value, reduction);
});
ACLNN(ScatterAdd, [](In self, int64_t dim, In index, In source, Out out) {
  start_from(self, out);
  out.scatter_add_(dim, index, source);
});

ACLNN(ScatterReduce, [](In self, int64_t dim, In index, In source, int64_t reduction, bool include_self, Out out) {
  start_from(self, out);
  scatter_reduce(out, dim, index, source, reduction, include_self);
});
ACLNN(InplaceScatterReduce, [](Out self, int64_t dim, In index, In source, int64_t reduction, bool include_self) {
  scatter_reduce(self, dim, index, source, reduction, include_self);
});
// The last dimension of the indices addresses the first dimensions of self.
ACLNN(ScatterNdUpdate, [](Out self, In indices, In updates) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& index : indices.to(at::kLong).unbind(-1)) list.push_back(index);
  write_elements([&] { self.index_put_(list, updates); });
});

// Each batch's updates, along an axis from its index on.
ACLNN(InplaceScatterUpdate, [](Out self, In indices, In updates, int64_t axis) {
  const int64_t dim = c10::maybe_wrap_dim(axis, self.dim());
  TORCH_CHECK(dim > 0 && indices.numel() == self.size(0),
              "expected an index for every batch and an axis after the batch's, got ", indices.numel(),
              " indices for shape ", self.sizes(), " and axis ", axis);
  const auto starts = indices.reshape({-1}).to(at::kLong).contiguous();
  for (int64_t batch = 0; batch < self.size(0); ++batch) {
    const int64_t start = starts.const_data_ptr<int64_t>()[batch];
    self.select(0, batch).narrow(dim - 1, start, updates.size(dim)).copy_(updates.select(0, batch));
  }
});

ACLNN(InplaceMaskedFillScalar, [](Out self, In mask, Scalar value) { self.masked_fill_(mask, value); });
ACLNN(InplaceMaskedFillTensor, [](Out self, In mask, In value) { self.masked_fill_(mask, value.reshape({})); });
ACLNN(InplaceMaskedScatter, [](Out self, In mask, In source) { self.masked_scatter_(mask, source); });
ACLNN(MaskedSelect, [](In self, In mask, DataDependentOut& out) { out.set(at::masked_select(self, mask)); });
ACLNN(Nonzero, [](In self, DataDependentOut& out) { out.set(at::nonzero(self)); });
// One row per dimension.
ACLNN(NonzeroV2, [](In self, DataDependentOut& out) { out.set(at::nonzero(self).t()); });

ACLNN(Embedding, [](In weight, In indices, Out out) { assign(out, at::embedding(weight, indices)); });
ACLNN(EmbeddingDenseBackward,
      [](In grad, In indices, int64_t num_weights, int64_t padding_idx, bool by_frequency, Out out) {
        assign(out, at::embedding_dense_backward(grad, indices, num_weights, padding_idx, by_frequency));
      });
ACLNN(EmbeddingRenorm, [](Out self, In indices, double max_norm, double norm_type) {
  at::embedding_renorm_(self, indices, max_norm, norm_type);
});
// Mode 0 sums the rows of a bag, 1 averages them, others take the largest elements. A bag without rows is zero.
ACLNN_TYPED_CHECKED(
    EmbeddingBag,
    "weight: float32 float16 bfloat16; indices, offsets, offset2bag, bag_size, max_indices: int32 int64; "
    "per_sample_weights, output: as weight",
    [](Phase phase, In weight, In indices, In offsets, bool scale_grad_by_freq, int64_t mode, bool sparse,
       OptionalIn per_sample_weights, bool include_last_offset, int64_t padding_idx, Out output, Out offset2bag,
       Out bag_size, Out max_indices) {
      TORCH_CHECK(!scale_grad_by_freq, "scale_grad_by_freq is true; expected false");
      TORCH_CHECK(!sparse, "sparse is true; expected false");
      check_rank("weight", weight, 2);
      check_rank("indices", indices, 1);
      check_rank("offsets", offsets, 1);
      if (per_sample_weights.has_value()) {
        TORCH_CHECK(mode == 0, "per_sample_weights is given and mode is ", mode, "; expected 0, the sum");
        check_shape("per_sample_weights", *per_sample_weights, indices.sizes());
      }
      TORCH_CHECK(!include_last_offset || offsets.numel() > 0,
                  "offsets is empty; expected an element with include_last_offset");
      const int64_t bags = offsets.numel() - (include_last_offset ? 1 : 0);
      check_shape("output", output, {bags, weight.size(1)});
      // torch_npu leaves it empty where no backward pass reads it.
      if (mode != 0 || offset2bag.numel() > 0) check_shape("offset2bag", offset2bag, indices.sizes());
      check_shape("bag_size", bag_size, {bags});
      if (mode == 0 || mode == 1) {
        check_shape("max_indices", max_indices, {bags});
      } else {
        check_shape("max_indices", max_indices, output.sizes());
      }
      if (phase == Phase::Check) return;
      const int64_t count = indices.numel();
      check_values("indices", indices, 0, weight.size(0) - 1);
      check_values("offsets", offsets, 0, count);
      const auto longs = offsets.to(at::kLong).contiguous();
      std::vector<int64_t> ends(longs.const_data_ptr<int64_t>(), longs.const_data_ptr<int64_t>() + longs.numel());
      if (!include_last_offset) ends.push_back(count);
      TORCH_CHECK(ends.front() == 0, "offsets[0] is ", ends.front(), "; expected 0");
      for (size_t i = 1; i < ends.size(); ++i) {
        TORCH_CHECK(ends[i - 1] <= ends[i], "offsets[", i, "] is ", ends[i], "; expected at least ", ends[i - 1]);
      }
      const auto rows_of_bags = indices.to(at::kLong);
      const bool sums = mode == 0, averages = mode == 1;
      max_indices.zero_();
      output.zero_();
      for (int64_t bag = 0; bag < output.size(0); ++bag) {
        if (offset2bag.numel() > 0) offset2bag.slice(0, ends[bag], ends[bag + 1]).fill_(bag);
        const auto all = rows_of_bags.slice(0, ends[bag], ends[bag + 1]);
        const auto kept = all.ne(padding_idx).nonzero().flatten();
        bag_size.select(0, bag).fill_(kept.numel());
        if (kept.numel() == 0) continue;
        const auto selected = all.index_select(0, kept);
        auto rows = in_float(weight.index_select(0, selected));
        if (per_sample_weights.has_value()) {
          const auto factors = per_sample_weights->slice(0, ends[bag], ends[bag + 1]).index_select(0, kept);
          rows = rows.to(at::kFloat).mul_(factors.to(at::kFloat).unsqueeze(1));
        }
        if (sums || averages) {
          output.select(0, bag).copy_(sums ? rows.sum(0) : rows.mean(0));
        } else {
          const auto [value, index] = rows.max(0);
          output.select(0, bag).copy_(value);
          max_indices.select(0, bag).copy_(selected.index_select(0, index));
        }
      }
      if (offset2bag.numel() > 0) offset2bag.slice(0, ends.back()).zero_();
    });

// The sum of the values of each coordinate: unique_indices says for each element which of the new ones it is.
ACLNN_TYPED_CHECKED(
    CoalesceSparse,
    "unique_len: int64 int32; unique_indices: as unique_len; indices: int64 int32; values: float32 int32 float16; "
    "new_indices: as indices; new_values: as values",
    [](Phase phase, In unique_len, In unique_indices, In indices, In values, Out new_indices, Out new_values) {
      check_rank("unique_len", unique_len, 1);
      check_rank("indices", indices, 2);
      check_shape("unique_indices", unique_indices, {indices.size(0)});
      auto shape = values.sizes().vec();
      TORCH_CHECK(!shape.empty() && shape[0] == indices.size(0), "values has shape ", values.sizes(), "; expected ",
                  indices.size(0), " elements in the first dimension");
      shape[0] = unique_len.numel();
      check_shape("new_values", new_values, shape);
      check_shape("new_indices", new_indices, {unique_len.numel(), indices.size(1)});
      if (phase == Phase::Check) return;
      check_values("unique_indices", unique_indices, 0, unique_len.numel() - 1);
      const auto target = unique_indices.to(at::kLong);
      new_indices.index_copy_(0, target, indices);
      const auto given = in_float(values);
      assign(new_values, at::zeros(new_values.sizes(), given.options()).index_add_(0, target, given));
    });
ACLNN(OneHot, [](In self, int64_t depth, In on_value, In off_value, int64_t axis, Out out) {
  TORCH_CHECK(out.size(axis) == depth, "the depth is ", depth, ", the given output has shape ", out.sizes());
  out.copy_(off_value.reshape({}).expand_as(out));
  const auto index = self.to(at::kLong).unsqueeze(axis);
  out.scatter_(axis, index, on_value.reshape({}).to(out.scalar_type()).expand_as(index));
});

// Mode says how fast, not what is computed; the fast one takes matrices alone.
ACLNN_TYPED_CHECKED(
    IndexAddV2,
    "self: float32 float16 int32 int16 int8 uint8 float64 int64 bool bfloat16; index: int32 int64; source, out: as "
    "self",
    [](Phase phase, In self, int64_t dim, In index, In source, Scalar alpha, int64_t mode, Out out) {
      TORCH_CHECK(dim >= -self.dim() && dim < self.dim(), "dim is ", dim, "; expected ", -self.dim(), " to ",
                  self.dim() - 1);
      check_rank("index", index, 1);
      auto shape = self.sizes().vec();
      shape[dim < 0 ? dim + self.dim() : dim] = index.numel();
      check_shape("source", source, shape);
      check_shape("out", out, self.sizes());
      TORCH_CHECK(mode != 0 || (self.dim() == 2 && (dim == 0 || dim == -2)),
                  "mode is 0; expected another, where self "
                  "has shape ",
                  self.sizes(), " and dim is ", dim);
      if (phase == Phase::Check) return;
      check_values("index", index, 0, self.size(dim) - 1);
      start_from(self, out);
      out.index_add_(dim, index, source, alpha);
    });
ACLNN_TYPED_CHECKED(
    GatherV3,
    "self: float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool float64 complex64; index: int32 int64; out: as "
    "self",
    [](Phase phase, In self, int64_t dim, In index, int64_t batch_dims, int64_t mode, Out out) {
      TORCH_CHECK(dim == 0 || dim == -self.dim(), "dim is ", dim, "; expected 0");
      check_range("batch_dims", batch_dims, 0, 0);
      check_range("mode", mode, 0, 1);
      check_range("the number of dimensions of self", self.dim(), 1, 8);
      auto shape = index.sizes().vec();
      shape.insert(shape.end(), self.sizes().begin() + 1, self.sizes().end());
      check_shape("out", out, shape);
      if (phase == Phase::Check) return;
      check_values("index", index, 0, self.size(0) - 1);
      assign(out, self.index_select(0, index.reshape({-1})).reshape(out.sizes()));
    });
