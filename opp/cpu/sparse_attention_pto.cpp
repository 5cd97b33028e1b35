// SPDX-License-Identifier: Apache-2.0
// The fused layer of DeepSeek's sparse attention on the CPU: writes the keys of all tokens to the caches, then takes
// one chunk of tokens after the other through the query path, the lightning indexer and sparse flash attention.
#include "cpu/sparse_attention_pto.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cpu/lightning_indexer_pto.h"
#include "cpu/linear.h"
#include "cpu/prolog.h"
#include "cpu/sparse_flash_attention_pto.h"
#include "cpu/tokens.h"

namespace opp {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// The intermediate results of a chunk of tokens before the attention.
struct Queries {
  at::Tensor latent;         // (tokens, q_lora)
  at::Tensor heads;          // (tokens, N, Dn + R)
  at::Tensor absorbed;       // (tokens, N, Dkv): the first Dn of each head, multiplied with w_uk
  at::Tensor index;          // (tokens, Ni, D)
  at::Tensor index_weights;  // (tokens, Ni)
  at::Tensor selected;       // (tokens, 1, selected)

  Queries(const SparseAttentionPto& call, int64_t tokens) {
    const auto make = [&](at::IntArrayRef sizes) { return at::empty(sizes, call.x.scalar_type()); };
    latent = make({tokens, call.q_lora()});
    heads = make({tokens, call.heads(), call.depth() + call.rope_depth()});
    absorbed = make({tokens, call.heads(), call.kv_lora()});
    index = make({tokens, call.index_heads(), call.index_depth()});
    index_weights = make({tokens, call.index_heads()});
    selected = at::empty({tokens, 1, call.selected()}, at::kInt);
  }
};

// The sequences of a chunk as the stages take them: packed query tokens, paged keys.
struct ChunkSequences {
  OptionalTensor query_totals;
  OptionalTensor key_lengths;
  OptionalTensor block_table;
  std::string layout_query = "TND";
  std::string layout_key = "PA_BSND";

  ChunkSequences(const SparseAttentionPto& call, const TokenChunk& chunk)
      : query_totals(view_of(chunk.query_totals)),
        key_lengths(view_of(chunk.key_lengths)),
        block_table(call.block_table.narrow(0, chunk.first_entry, key_lengths->numel())) {}

  SequenceArguments arguments(const at::Tensor& query, const at::Tensor& key) const {
    return {query, key, query_totals, key_lengths, block_table, layout_query, layout_key, /*sparse_mode=*/3};
  }

 private:
  static at::Tensor view_of(const std::vector<int>& numbers) {
    return at::from_blob(const_cast<int*>(numbers.data()), static_cast<int64_t>(numbers.size()), at::kInt);
  }
};

template <class Element>
class SparseAttention {
 public:
  SparseAttention(const SparseAttentionPto& call, const SparseAttentionTiling& tiling)
      : call_(call),
        tiling_(tiling),
        x_(call.x),
        out_(call.attn_out.reshape({call.tokens(), call.heads(), call.kv_lora()})) {}  // a copy if it cannot be a view

  void run() {
    for (const TokenChunk& chunk : tiling_.chunks) write_keys(chunk);
    const Queries queries(call_, tiling_.chunk_tokens);
    for (const TokenChunk& chunk : tiling_.chunks) {
      make_queries(chunk, queries);
      attend(chunk, queries);
    }
    if (!out_.is_alias_of(call_.attn_out)) call_.attn_out.copy_(out_.view(call_.attn_out.sizes()));
  }

 private:
  using XRows = typename TokenRows<Element>::Chunk;

  RmsNorm<Element> rms_norm(const at::Tensor& gamma) const { return {gamma, static_cast<float>(call_.rms_norm_eps)}; }
  Rope<Element> rope(const std::string& mode) const { return {call_.cos, call_.sin, mode == "interleave"}; }

  // out = rows weight; out holds a row for each, of any shape.
  static Linear product(const Element* rows, int64_t stride, const Weight& weight, const at::Tensor& out) {
    return {rows, stride, weight, out.data_ptr(), out.scalar_type(), out.stride(0)};
  }
  static Linear product(const XRows& rows, const Weight& weight, const at::Tensor& out) {
    return product(rows.data, rows.stride, weight, out);
  }
  static Linear product(const at::Tensor& rows, const Weight& weight, const at::Tensor& out) {
    return product(rows.const_data_ptr<Element>(), rows.stride(0), weight, out);
  }

  void write_keys(const TokenChunk& chunk) {
    const at::Tensor kv = at::empty({chunk.count, call_.kv_lora() + call_.rope_depth()}, call_.x.scalar_type());
    const at::Tensor index_k = at::empty({chunk.count, call_.index_depth()}, at::kFloat);
    const XRows x = x_.chunk(chunk.first, chunk.count);
    linear(chunk.count, {product(x, call_.w_dkv_kr, kv), product(x, call_.w_idx_k, index_k)});
    at::parallel_for(0, chunk.count, 1, [&](int64_t begin, int64_t end) {
      write_kv(chunk, kv, begin, end);
      write_index_keys(chunk, index_k, begin, end);
    });
  }

  // Normalises the first Dkv numbers of each row, rotates the others, and writes both to their caches.
  void write_kv(const TokenChunk& chunk, const at::Tensor& kv, int64_t begin, int64_t end) const {
    const TokenRows<Element> kv_cache(call_.kv_cache, true);
    const TokenRows<Element> kr_cache(call_.kr_cache, true);
    RmsNorm<Element> norm = rms_norm(call_.gamma_ckv);
    Rope<Element> rotation = rope(call_.rope_mode);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = tiling_.slots[chunk.first + i];
      if (slot < 0) continue;
      Element* row = kv.mutable_data_ptr<Element>() + i * kv.stride(0);
      norm.apply(row, row);
      kv_cache.write(slot, row);
      rotation.load(chunk.first + i);
      rotation.apply(row + call_.kv_lora(), row + call_.kv_lora());
      kr_cache.write(slot, row + call_.kv_lora());
    }
  }

  void write_index_keys(const TokenChunk& chunk, const at::Tensor& keys, int64_t begin, int64_t end) const {
    const TokenRows<Element> cache(call_.index_k_cache, true);
    LayerNorm<Element> norm(call_.in_gamma_k, call_.in_beta_k, static_cast<float>(call_.layer_norm_eps));
    Rope<Element> rotation = rope(call_.indexer_rope_mode);
    Buffer<Element> row(call_.index_depth());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = tiling_.slots[chunk.first + i];
      if (slot < 0) continue;
      norm.apply(keys.const_data_ptr<float>() + i * keys.stride(0), row.data());
      rotation.load(chunk.first + i);
      rotation.apply(row.data(), row.data());
      cache.write(slot, row.data());
    }
  }

  void make_queries(const TokenChunk& chunk, const Queries& queries) const {
    const XRows x = x_.chunk(chunk.first, chunk.count);
    linear(chunk.count, {product(x, call_.w_dq, queries.latent), product(x, call_.w_idx_proj, queries.index_weights)});
    normalise(queries.latent, chunk.count);
    linear(chunk.count, {product(queries.latent, call_.w_uq_qr, queries.heads),
                         product(queries.latent, call_.w_idx_qb, queries.index)});
    absorb(queries, chunk.count);
    at::parallel_for(0, chunk.count, 1, [&](int64_t begin, int64_t end) {
      rotate(chunk, call_.rope_mode, rope_of(queries), begin, end);
      rotate(chunk, call_.indexer_rope_mode, queries.index, begin, end);
    });
  }

  void normalise(const at::Tensor& latent, int64_t tokens) const {
    at::parallel_for(0, tokens, 1, [&](int64_t begin, int64_t end) {
      RmsNorm<Element> norm = rms_norm(call_.gamma_cq);
      Element* rows = latent.mutable_data_ptr<Element>();
      for (int64_t i = begin; i < end; ++i) norm.apply(rows + i * latent.stride(0), rows + i * latent.stride(0));
    });
  }

  // The last R numbers of each head.
  at::Tensor rope_of(const Queries& queries) const {
    return queries.heads.narrow(2, call_.depth(), call_.rope_depth());
  }

  // Rotates the first R numbers of every head of the tokens [begin, end).
  void rotate(const TokenChunk& chunk, const std::string& mode, const at::Tensor& query, int64_t begin,
              int64_t end) const {
    Rope<Element> rotation = rope(mode);
    for (int64_t i = begin; i < end; ++i) {
      rotation.load(chunk.first + i);
      for (int64_t head = 0; head < query.size(1); ++head) {
        Element* row = query.mutable_data_ptr<Element>() + i * query.stride(0) + head * query.stride(1);
        rotation.apply(row, row);
      }
    }
  }

  void absorb(const Queries& queries, int64_t tokens) const {
    // What differs from head to head are addresses: making tensors of them adds a tenth to the time of few tokens.
    const Linear first =
        product(queries.heads.select(1, 0), Weight(call_.w_uk.select(0, 0)), queries.absorbed.select(1, 0));
    std::vector<Linear> products(call_.heads(), first);
    for (int64_t head = 0; head < call_.heads(); ++head) {
      Linear& of_head = products[head];
      of_head.x = static_cast<const Element*>(first.x) + head * queries.heads.stride(1);
      of_head.weight.data = static_cast<const Element*>(first.weight.data) + head * call_.w_uk.stride(0);
      of_head.out = static_cast<Element*>(first.out) + head * queries.absorbed.stride(1);
    }
    linear(tokens, products);
  }

  void attend(const TokenChunk& chunk, const Queries& queries) const {
    const ChunkSequences sequences(call_, chunk);
    const auto of_chunk = [&](const at::Tensor& tensor) { return tensor.narrow(0, 0, chunk.count); };
    const at::Tensor index = of_chunk(queries.index);
    const at::Tensor selected = of_chunk(queries.selected);
    lightning_indexer_pto({sequences.arguments(index, call_.index_k_cache), of_chunk(queries.index_weights),
                           call_.selected(), /*return_value=*/false, selected, /*sparse_values=*/at::Tensor()});
    const at::Tensor query = of_chunk(queries.absorbed);
    const OptionalTensor query_rope = of_chunk(rope_of(queries));
    const OptionalTensor key_rope = call_.kr_cache;
    sparse_flash_attention_pto({sequences.arguments(query, call_.kv_cache), call_.kv_cache, selected, query_rope,
                                key_rope, /*attention_sinks=*/std::nullopt, scale(), /*return_softmax_lse=*/false,
                                out_.narrow(0, chunk.first, chunk.count), /*softmax_lse=*/at::Tensor()});
  }

  double scale() const {
    if (call_.softmax_scale > 0) return call_.softmax_scale;
    return 1 / std::sqrt(static_cast<double>(call_.kv_lora() + call_.rope_depth()));
  }

  const SparseAttentionPto& call_;
  const SparseAttentionTiling& tiling_;
  const TokenRows<Element> x_;
  const at::Tensor out_;
};

}  // namespace

void sparse_attention_pto(const SparseAttentionPto& call) {
  const SparseAttentionTiling tiling = tile(call, at::get_num_threads());
  if (call.x.scalar_type() == at::kHalf) {
    SparseAttention<at::Half>(call, tiling).run();
  } else {
    SparseAttention<at::BFloat16>(call, tiling).run();
  }
}

}  // namespace opp
