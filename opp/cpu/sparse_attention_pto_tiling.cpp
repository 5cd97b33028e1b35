// SPDX-License-Identifier: Apache-2.0
// Divides the tokens of the fused layer in chunks.
#include <algorithm>
#include <optional>

#include "cpu/sequences.h"
#include "cpu/slots.h"
#include "cpu/sparse_attention_pto.h"

namespace opp {
namespace {

// What the queries of a chunk may take for each thread, beside what the stages take themselves.
constexpr int64_t kScratchOfThread = 32 << 20;
// A chunk of more tokens than this has a multiple of it: what linear layers multiply with a weight they have packed.
constexpr int64_t kTokenStep = 256;

// The memory of one token on its way to the attention.
int64_t bytes_of_token(const SparseAttentionPto& call) {
  const int64_t queries = call.heads() * (call.depth() + call.rope_depth() + call.kv_lora());
  const int64_t index_queries = call.index_heads() * (call.index_depth() + 1);
  return (call.q_lora() + queries + index_queries) * call.x.element_size() + call.selected() * sizeof(int);
}

int64_t tokens_of_chunk(const SparseAttentionPto& call, int64_t threads) {
  const int64_t max_tokens = std::max<int64_t>(1, kScratchOfThread * threads / bytes_of_token(call));
  return max_tokens > kTokenStep ? max_tokens / kTokenStep * kTokenStep : max_tokens;
}

TokenChunk chunk_of(const std::vector<Sequence>& entries, int64_t first, int64_t last) {
  TokenChunk chunk{first, last - first, 0, {}, {}};
  const int64_t queries = entries.front().queries;
  chunk.first_entry = first / queries;
  for (int64_t entry = chunk.first_entry; entry * queries < last; ++entry) {
    const int64_t end = std::min(last, (entry + 1) * queries);
    const int64_t later = (entry + 1) * queries - end;
    chunk.query_totals.push_back(static_cast<int>(end - first));
    chunk.key_lengths.push_back(static_cast<int>(std::max<int64_t>(0, entries[entry].keys - later)));
  }
  return chunk;
}

}  // namespace

SparseAttentionTiling tile(const SparseAttentionPto& call, int64_t threads) {
  const std::optional<at::Tensor> none;
  const std::optional<at::Tensor> lengths = call.act_seqs;
  const std::optional<at::Tensor> table = call.block_table;
  const std::string layout_query = "BSND";
  const std::string layout_key = "PA_BSND";
  SparseAttentionTiling tiling;
  tiling.slots = read_slots("cache_index", call.cache_index, call.kv_cache.size(0) * call.kv_cache.size(1));
  const auto entries = read_sequences(
      {call.x, call.kv_cache, none, lengths, table, layout_query, layout_key, 3, "act_seqs", "kv_cache"});
  tiling.chunk_tokens = std::min(call.tokens(), tokens_of_chunk(call, threads));
  for (int64_t first = 0; first < call.tokens(); first += tiling.chunk_tokens) {
    tiling.chunks.push_back(chunk_of(entries, first, std::min(call.tokens(), first + tiling.chunk_tokens)));
  }
  return tiling;
}

}  // namespace opp
