// SPDX-License-Identifier: Apache-2.0
// What reshape_and_cache checks and decides before its kernel runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "op_host/reshape_and_cache_tiling.h"

namespace opp {

// The arguments of one call; aclnn_reshape_and_cache.h describes them.
struct ReshapeAndCache {
  const at::Tensor key;
  const std::optional<at::Tensor> value;
  const at::Tensor key_cache;
  const std::optional<at::Tensor> value_cache;
  const at::Tensor slot_mapping;
  const std::string& cache_layout;

  bool nz() const { return cache_layout == "NZ"; }
  // Of key_cache; value_cache has the same.
  int64_t block_size() const { return key_cache.size(nz() ? 2 : 1); }
  int64_t capacity() const { return key_cache.size(0) * block_size(); }
};

// Throws c10::Error unless dtypes, ranks, sizes and the layout fit together; reads no tensor's data.
void check(const ReshapeAndCache& call);

// Divides the work over at most `cores` blocks. The rows of key and value must be dense, and so must be slot_mapping.
ReshapeAndCacheTiling tile(const ReshapeAndCache& call, uint32_t cores);

// Whether the elements of each token's row lie side by side, in order.
bool has_dense_rows(const at::Tensor& rows, const at::Tensor& cache, bool nz);

}  // namespace opp
