// SPDX-License-Identifier: Apache-2.0
// Paged caches of shape (blocks, block size, heads, head size): rows that slots name, and those that block tables name.
#pragma once

#include <ATen/ops/index_select.h>

#include "operation.h"

namespace cann_cpu {

inline void check_cache_rows(const char* name, In rows, const char* cache_name, In cache, In slots) {
  check_rank(cache_name, cache, 4);
  check_contiguous(cache_name, cache);
  check_rank("slots", slots, 1);
  check_shape(name, rows, {slots.size(0), cache.size(2), cache.size(3)});
}

// The rows of a cache that slots name, and which of the slots name one: a negative slot is that of a padded token.
struct SlotRows {
  at::Tensor tokens, slots;

  void write(In rows, Out cache) const {
    cache.view({-1, cache.size(2), cache.size(3)}).index_copy_(0, slots, rows.index_select(0, tokens));
  }
};

inline SlotRows rows_of_slots(In slots, In cache) {
  check_values("slots", slots, std::numeric_limits<int32_t>::min(), cache.size(0) * cache.size(1) - 1);
  const auto tokens = slots.ge(0).nonzero().reshape({-1});
  return {tokens, slots.to(at::kLong).index_select(0, tokens)};
}

}  // namespace cann_cpu
