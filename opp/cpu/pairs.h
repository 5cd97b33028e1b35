// SPDX-License-Identifier: Apache-2.0
// Index scores by dot products of pairs of bfloat16 (AVX512-BF16), which leave no products in memory.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace opp {

// Rows that are multiplied at once.
constexpr int64_t kPairRows = 4;

// Whether this processor has dot products of pairs, and CANN_CPU_CAPABILITY allows them.
bool has_pairs();

// scores[r] = sum over h < heads of weights[h] * relu(a[r] b[h]), where relu keeps NaN, for `rows` rows, a multiple of
// kPairRows, and the columns of b, in panels as Products of pairs have them: those of `heads` and what pads them to a
// multiple of 16, as weights are. depth is even. The order of the additions depends on nothing but heads and depth.
// Meanwhile brings as many rows from `next` on to the cache, if that is not null.
void weighted_relu_pairs(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, const float* weights,
                         float* scores, int64_t rows, int64_t heads, int64_t depth, const at::BFloat16* next);

}  // namespace opp
