// SPDX-License-Identifier: Apache-2.0
// The tiling data of a call's sequences: the places of their tokens, padded (BSND), packed (TND) or in pages (PA_BSND).
#pragma once

#include <cstdint>

namespace opp {

struct SequencesTiling {
  int64_t batch;
  int64_t queries;        // S1; of a packed query its tokens
  int64_t keys;           // S2, or what a row of block_table holds; of a packed key its tokens
  int64_t pages;          // of key
  int64_t page_size;      // tokens
  int64_t pages_of_row;   // of block_table
  uint8_t packed;         // layout_query is TND
  uint8_t paged;          // layout_key is PA_BSND
  uint8_t causal;         // sparse_mode is 3
  uint8_t query_lengths;  // given
  uint8_t key_lengths;
};

}  // namespace opp
