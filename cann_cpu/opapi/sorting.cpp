// SPDX-License-Identifier: Apache-2.0
// Sorting, selection by rank, and distinct values.
#include <ATen/ops/_unique.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>

#include "checks.h"

using namespace cann_cpu;

ACLNN(Sort, [](In self, bool stable, int64_t dim, bool descending, Out values, Out indices) {
  at::sort_out(values, indices, self, stable, dim, descending);
});
ACLNN(Topk, [](In self, int64_t k, int64_t dim, bool largest, bool sorted, Out values, Out indices) {
  at::topk_out(values, indices, self, k, dim, largest, sorted);
});
ACLNN_TYPED_CHECKED(
    TopkV2, "self: float32 float16 bfloat16 float64 int8 uint8 int16 int32 int64; values: as self; indices: int64",
    [](Phase phase, In self, int64_t k, int64_t dim, bool largest, bool sorted, int64_t sort_policy, Out values,
       Out indices) {
      // 0 leaves the sort to CANN, 1 asks for a bitonic one: they differ in the order of equal values, which is free.
      check_range("sort_policy", sort_policy, 0, 1);
      const int64_t rank = std::max<int64_t>(self.dim(), 1);
      check_range("dim", dim, -rank, rank - 1);
      auto expected = self.sizes().vec();
      if (expected.empty()) {
        check_range("k", k, 0, 1);
      } else {
        int64_t& size = expected[static_cast<size_t>(dim < 0 ? dim + rank : dim)];
        check_range("k", k, 0, size);
        size = k;
      }
      check_shape("values", values, expected);
      check_shape("indices", indices, expected);
      if (phase == Phase::Check) return;
      at::topk_out(values, indices, self, k, dim, largest, sorted);
    });
ACLNN(Kthvalue, [](In self, int64_t k, int64_t dim, bool keepdim, Out values, Out indices) {
  at::kthvalue_out(values, indices, self, k, dim, keepdim);
});
ACLNN(SearchSorted, [](In sorted, In self, bool out_int32, bool right, OptionalIn sorter, Out out) {
  at::searchsorted_out(out, sorted, self, out_int32, right, std::nullopt, sorter);
});
ACLNN(SearchSorteds, [](In sorted, Scalar self, bool out_int32, bool right, OptionalIn sorter, Out out) {
  assign(out, at::searchsorted(sorted, self, out_int32, right, std::nullopt, sorter));
});
ACLNN(Bucketize, [](In self, In boundaries, bool out_int32, bool right, Out out) {
  at::bucketize_out(out, self, boundaries, out_int32, right);
});

namespace {

void set_unless_unwanted(bool wanted, DataDependentOut& out, const at::Tensor& value) {
  if (wanted) out.set(value);
}

}  // namespace

ACLNN(Unique, [](In self, bool sorted, bool return_inverse, DataDependentOut& values, DataDependentOut& inverse) {
  auto [value, inverse_value] = at::_unique(self, sorted, return_inverse);
  values.set(value);
  set_unless_unwanted(return_inverse, inverse, inverse_value);
});
ACLNN(Unique2, [](In self, bool sorted, bool return_inverse, bool return_counts, DataDependentOut& values,
                  DataDependentOut& inverse, DataDependentOut& counts) {
  auto [value, inverse_value, count] = at::_unique2(self, sorted, return_inverse, return_counts);
  values.set(value);
  set_unless_unwanted(return_inverse, inverse, inverse_value);
  set_unless_unwanted(return_counts, counts, count);
});
ACLNN(UniqueConsecutive, [](In self, bool return_inverse, bool return_counts, int64_t dim, DataDependentOut& values,
                            DataDependentOut& inverse, DataDependentOut& counts) {
  constexpr int64_t kFlattened = 1000;  // how torch_npu says that there is no dim
  auto [value, inverse_value, count] = at::unique_consecutive(
      self, return_inverse, return_counts, dim == kFlattened ? std::nullopt : std::optional<int64_t>(dim));
  values.set(value);
  set_unless_unwanted(return_inverse, inverse, inverse_value);
  set_unless_unwanted(return_counts, counts, count);
});
ACLNN(UniqueDim, [](In self, bool sorted, bool return_inverse, int64_t dim, DataDependentOut& values,
                    DataDependentOut& inverse, DataDependentOut& counts) {
  auto [value, inverse_value, count] = at::unique_dim(self, dim, sorted, return_inverse, /*return_counts=*/true);
  values.set(value);
  inverse.set(inverse_value);
  counts.set(count);
});
