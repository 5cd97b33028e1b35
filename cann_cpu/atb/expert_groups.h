// SPDX-License-Identifier: Apache-2.0
// Groups of experts, and the best of them for each token.
#pragma once

#include <ATen/ops/zeros_like.h>

#include "operation.h"

namespace cann_cpu {

// x has shape (tokens, experts).
inline void check_expert_groups(In x, int64_t groups, int64_t k, int64_t n) {
  check_rank("x", x, 2);
  TORCH_CHECK(groups > 0 && x.size(1) % groups == 0, x.size(1), " experts do not divide among ", groups, " groups");
  check_range("the number of groups to keep", k, 1, groups);
  check_range("n", n, 1, x.size(1) / groups);
}

// x with 0 for the experts of all groups but the k with the largest sums of their n largest values; of equal groups the
// first are kept.
inline at::Tensor with_best_groups(In x, int64_t groups, int64_t k, int64_t n) {
  const auto grouped = x.unflatten(1, {groups, -1});
  const auto scores = std::get<0>(grouped.to(at::kFloat).topk(n, -1)).sum({-1});
  const auto order = std::get<1>(scores.sort(/*stable=*/true, -1, /*descending=*/true));
  const auto kept = at::zeros_like(scores, at::kBool).scatter_(1, order.narrow(1, 0, k), true);
  return grouped.masked_fill(kept.logical_not().unsqueeze(2), 0).flatten(1);
}

}  // namespace cann_cpu
