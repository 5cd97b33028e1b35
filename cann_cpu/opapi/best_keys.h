// SPDX-License-Identifier: Apache-2.0
// Selects the best of a row of scores.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace cann_cpu {

// Writes the indices of the best scores, and the scores if they are asked for, best first: NaN before all numbers, of
// equal scores the first. Leaves what `keys` scores do not fill.
inline void write_best(const float* scores, int64_t keys, int64_t count, int32_t* indices, float* values) {
  // Integers in the order of the scores, and below equal scores the inverted index.
  std::vector<uint64_t> ranks(static_cast<size_t>(keys));
  for (int64_t i = 0; i < keys; ++i) {
    const auto bits = std::bit_cast<uint32_t>(scores[i] + 0.0F);  // -0 equals 0
    const uint32_t ordered = scores[i] != scores[i] ? ~0U : (bits >> 31) != 0 ? ~bits : bits | (1U << 31);
    ranks[static_cast<size_t>(i)] = uint64_t{ordered} << 32 | static_cast<uint32_t>(~i);
  }
  const int64_t best = std::min(count, keys);
  if (best < keys) std::nth_element(ranks.begin(), ranks.begin() + best, ranks.end(), std::greater<>());
  std::sort(ranks.begin(), ranks.begin() + best, std::greater<>());
  for (int64_t i = 0; i < best; ++i) {
    indices[i] = static_cast<int32_t>(~static_cast<uint32_t>(ranks[static_cast<size_t>(i)]));
    if (values != nullptr) values[i] = scores[indices[i]];
  }
}

}  // namespace cann_cpu
