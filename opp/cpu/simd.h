// Loops that are compiled once for each vector extension; the machine's best is chosen at run time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace opp {

constexpr int64_t kLanes = 16;

// scores[r] = sum over h < heads of weights[h] * relu(products[r * stride + h]), where relu keeps NaN. Reads weights
// and products up to the next multiple of kLanes. The order of the additions depends on nothing but heads.
void weighted_relu_sums(const float* products, int64_t stride, int64_t rows, const float* weights, int64_t heads,
                        float* scores);

void to_float(const at::Half* from, int64_t count, float* to);
void to_float(const at::BFloat16* from, int64_t count, float* to);

}  // namespace opp
