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

#include <array>

#include "cann_cpu/deterministic.h"
#include "table.h"

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
ACLNN(OneHot, [](In self, int64_t depth, In on_value, In off_value, int64_t axis, Out out) {
  TORCH_CHECK(out.size(axis) == depth, "the depth is ", depth, ", the given output has shape ", out.sizes());
  out.copy_(off_value.reshape({}).expand_as(out));
  const auto index = self.to(at::kLong).unsqueeze(axis);
  out.scatter_(axis, index, on_value.reshape({}).to(out.scalar_type()).expand_as(index));
});
