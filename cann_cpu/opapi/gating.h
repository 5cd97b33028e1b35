// SPDX-License-Identifier: Apache-2.0
// The choice of experts (gating.cpp).
#pragma once

#include "table.h"

namespace cann_cpu {

// The k highest of each row and their places; of equal ones, those that come first.
CANN_EXPORT std::pair<at::Tensor, at::Tensor> highest_scores(In scores, int64_t k);

// Scores (tokens, experts) with `hidden` for the experts of all groups but the k with the largest sums of their n
// highest scores; of equal groups, those that come first are kept.
CANN_EXPORT at::Tensor with_best_groups(In scores, int64_t groups, int64_t k, int64_t n, double hidden);

}  // namespace cann_cpu
