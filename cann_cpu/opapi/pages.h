// SPDX-License-Identifier: Apache-2.0
// Caches in pages of tokens (key_value_cache.cpp).
#pragma once

#include "table.h"

namespace cann_cpu {

// A view of a cache as (pages, tokens, ...), the rest being the row of a token. Integers stand for its numbers, since
// ATen cannot index all dtypes. Slot n is token n % tokens of page n / tokens.
struct Pages {
  explicit Pages(const at::Tensor& view);

  at::Tensor cache;
  std::vector<int64_t> row;  // its shape

  int64_t tokens() const { return cache.size(1); }
  int64_t slots() const { return cache.size(0) * cache.size(1); }
};

enum class CacheLayout { Rows, HeadsFirst, Parts };  // ND, NHSD and PA_NZ

CANN_EXPORT Pages pages_of(const char* name, const at::Tensor& cache, CacheLayout layout);

CANN_EXPORT void check_tokens(const char* name, const at::Tensor& tokens, const Pages& pages, int64_t count);

// Writes each token to its slot; those of negative slots are not written.
CANN_EXPORT void scatter(const Pages& pages, const at::Tensor& tokens, const at::Tensor& slots);

// Copies the rows of all sequences, one sequence after the other, each from the page on that contains its offset.
struct PagedRead {
  In key_cache, value_cache, block_tables, seq_lens;
  const at::Tensor &key, &value;
  OptionalIn seq_offset;
  CacheLayout layout;
  bool is_seq_lens_cumsum;
  const char *tables_name = "block_tables", *lengths_name = "seq_lens", *offsets_name = "seq_offset";

  int64_t batch() const { return block_tables.size(0); }
  CANN_EXPORT void check() const;
  CANN_EXPORT void run() const;
};

}  // namespace cann_cpu
