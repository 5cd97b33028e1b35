// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on the CPU: the arguments of a call, their checks, the division of the work, the kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/sequences.h"

namespace opp {

// The arguments of one call; aclnn_sparse_flash_attention_pto.h describes them.
struct SparseFlashAttentionPto : SequenceArguments {
  const at::Tensor& value;
  const at::Tensor& sparse_indices;
  const std::optional<at::Tensor>& query_rope;
  const std::optional<at::Tensor>& key_rope;
  const std::optional<at::Tensor>& attention_sinks;
  double scale_value;
  bool return_softmax_lse;
  const at::Tensor& attention_out;
  const at::Tensor& softmax_lse;

  int64_t heads_of_key_head() const { return query.size(-2) / key.size(-2); }
  // The depth of the products of query and key, including the rope parts.
  int64_t depth() const { return query.size(-1) + (query_rope ? query_rope->size(-1) : 0); }
};

// A row of sparse_indices: what one query token attends to under one key head.
struct AttentionRow {
  int64_t sequence;
  int64_t query;  // in its sequence
  int64_t key_head;
  int64_t named;  // indices before the first -1
};

// Heads [first_head, first_head + heads) of those that share a row's key head.
struct AttentionTile {
  int64_t row;
  int64_t first_head;
  int64_t heads;
};

struct AttentionTiling {
  int64_t tile_heads;  // the most that a tile has
  std::vector<Sequence> sequences;
  std::vector<AttentionRow> rows;
  std::vector<AttentionTile> tiles;

  // The most indices that a row has before its first -1.
  int64_t max_named() const;
};

// Reads lengths, block table and indices, and divides the work so that each of `threads` gets some. Throws c10::Error
// for a length, a block number or an index out of range.
AttentionTiling tile(const SparseFlashAttentionPto& call, int64_t threads);

// Runs a call that tiling takes on all cores. Throws c10::Error, before it writes anything, for a length, a block
// number or an index out of range.
void sparse_flash_attention_pto(const SparseFlashAttentionPto& call);

}  // namespace opp
