// SPDX-License-Identifier: Apache-2.0
// The prolog of DeepSeek's sparse attention: projects tokens, writes their keys to three caches, and leaves the queries
// of the attention and of the indexer in the workspace.
//
// Chunks of tokens go through four stages. The cube cores compute the products and the vector cores the rest.
// In each step every stage has another chunk, the one that went through the stage before it in the last step; between
// steps all cores wait for each other. A chunk's intermediate results lie in the workspace, which has two parts for
// each of them: one is written while the other is read.
#pragma once

#include "chunks.h"
#include "linear.h"
#include "norm.h"
#include "rope.h"
#include "slots.h"
#include "sparse_attention_prolog_tiling.h"

namespace opp {

struct SparseAttentionPrologArguments {
  GM_ADDR x;
  GM_ADDR w_dq;
  GM_ADDR w_uq_qr;
  GM_ADDR w_uk;
  GM_ADDR w_dkv_kr;
  GM_ADDR gamma_cq;
  GM_ADDR gamma_ckv;
  GM_ADDR sin;
  GM_ADDR cos;
  GM_ADDR cache_index;
  GM_ADDR kv_cache;
  GM_ADDR kr_cache;
  GM_ADDR w_idx_qb;
  GM_ADDR w_idx_k;
  GM_ADDR w_idx_proj;
  GM_ADDR in_gamma_k;
  GM_ADDR in_beta_k;
  GM_ADDR index_k_cache;
  GM_ADDR workspace;
};

// The stages of the cube cores.
template <class T>
class SparseAttentionProducts {
 public:
  __aicore__ inline SparseAttentionProducts(const SparseAttentionPrologTiling& tiling,
                                            const SparseAttentionPrologArguments& arguments, AscendC::TPipe& pipe)
      : tiling_(tiling), arguments_(arguments), layers_(pipe) {}

  // Tokens with the weights that they meet first.
  __aicore__ inline void Project(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t hidden = tiling_.hidden, width = tiling_.kv_lora + tiling_.rope_depth;
    const Linear latent{chunk.count, hidden, tiling_.q_lora, hidden, tiling_.q_lora, tiling_.w_dq_in_blocks != 0};
    const Linear kv{chunk.count, hidden, width, hidden, width, tiling_.w_dkv_kr_in_blocks != 0};
    const Linear keys{
        chunk.count, hidden, tiling_.index_depth, hidden, tiling_.index_pitch, tiling_.w_idx_k_in_blocks != 0};
    const Linear weights{
        chunk.count, hidden, tiling_.index_heads, hidden, tiling_.index_heads, tiling_.w_idx_proj_in_blocks != 0};
    Share share(Cost(latent) + Cost(kv) + Cost(keys) + Cost(weights), AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    GM_ADDR x = arguments_.x + chunk.first * hidden * sizeof(T);
    Compute<T>(latent, share, x, arguments_.w_dq, chunk.workspace + tiling_.latent);
    Compute<T>(kv, share, x, arguments_.w_dkv_kr, chunk.workspace + tiling_.kv);
    Compute<float>(keys, share, x, arguments_.w_idx_k, chunk.workspace + tiling_.index_keys);
    Compute<T>(weights, share, x, arguments_.w_idx_proj,
               arguments_.workspace + tiling_.index_weights + chunk.first * tiling_.index_heads * sizeof(T));
  }

  // Latent queries with the weights that make heads of them.
  __aicore__ inline void Expand(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t q_lora = tiling_.q_lora, width = tiling_.heads * (tiling_.depth + tiling_.rope_depth),
                  index_width = tiling_.index_heads * tiling_.index_depth;
    const Linear heads{chunk.count, q_lora, width, q_lora, width, tiling_.w_uq_qr_in_blocks != 0};
    const Linear index{chunk.count, q_lora, index_width, q_lora, index_width, tiling_.w_idx_qb_in_blocks != 0};
    Share share(Cost(heads) + Cost(index), AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    GM_ADDR latent = chunk.workspace + tiling_.normal;
    Compute<T>(heads, share, latent, arguments_.w_uq_qr, chunk.workspace + tiling_.query);
    Compute<T>(index, share, latent, arguments_.w_idx_qb, chunk.workspace + tiling_.index_products);
  }

  // The part of each head that is not rotated, times the head's w_uk.
  __aicore__ inline void Absorb(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t depth = tiling_.depth, kv_lora = tiling_.kv_lora, pitch = depth + tiling_.rope_depth;
    const Linear head{chunk.count, depth, kv_lora, tiling_.heads * pitch, tiling_.heads * kv_lora, false};
    Share share(tiling_.heads * Cost(head), AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    GM_ADDR out = arguments_.workspace + tiling_.absorbed + chunk.first * tiling_.heads * kv_lora * sizeof(T);
    for (int64_t i = 0; i < tiling_.heads; ++i) {
      Compute<T>(head, share, chunk.workspace + tiling_.query + i * pitch * sizeof(T),
                 arguments_.w_uk + i * depth * kv_lora * sizeof(T), out + i * kv_lora * sizeof(T));
    }
  }

 private:
  __aicore__ static inline int64_t Cost(const Linear& product) { return LinearLayers::Cost<T>(product); }

  template <class Out>
  __aicore__ inline void Compute(const Linear& product, Share& share, GM_ADDR x, GM_ADDR weight, GM_ADDR out) {
    layers_.template Compute<T, Out>(product, share, x, weight, out);
  }

  const SparseAttentionPrologTiling& tiling_;
  const SparseAttentionPrologArguments& arguments_;
  LinearLayers layers_;
};

// The stages of the vector cores. Each of them takes as many rows at once as lie in the unified buffer, or fewer, so
// that all cores have some.
template <class T>
class SparseAttentionRows {
 public:
  __aicore__ inline SparseAttentionRows(const SparseAttentionPrologTiling& tiling,
                                        const SparseAttentionPrologArguments& arguments, AscendC::TPipe& pipe)
      : tiling_(tiling),
        arguments_(arguments),
        cores_(AscendC::GetBlockNum() * AscendC::GetSubBlockNum()),
        latent_(Widths(tiling.q_lora)),
        kv_(Widths(tiling.kv_lora)),
        rope_(Widths(tiling.rope_depth)),
        index_(Widths(tiling.index_depth)),
        latents_(Portion(tiling.chunk, RowsOfTile(latent_.pitch), cores_)),
        heads_(Portion(tiling.heads * tiling.chunk, Smaller<int64_t>(RowsOfTile(rope_.pitch), tiling.heads), cores_)),
        indexHeads_(Portion(tiling.index_heads * tiling.chunk,
                            Smaller<int64_t>(RowsOfTile(index_.pitch), tiling.index_heads), cores_)),
        keys_(Smaller(Smaller(RowsOfTile(kv_.pitch), RowsOfTile(index_.pitch)),
                      Smaller(RowsOfTile(rope_.pitch), SlotGroup::kMax))),
        ropeAtOnce_(Greater(heads_, keys_)),
        indexAtOnce_(Greater(indexHeads_, keys_)),
        slots_(pipe, "cache_index", arguments.cache_index, tiling.slot_bytes, tiling.slots_of_row, tiling.capacity),
        numbers_(pipe, Widest()),
        latentNorm_(pipe, latent_.width, latent_.pitch, tiling.rms_epsilon, arguments.gamma_cq),
        kvNorm_(pipe, kv_.width, kv_.pitch, tiling.rms_epsilon, arguments.gamma_ckv),
        indexNorm_(pipe, index_.width, index_.pitch, tiling.layer_epsilon, arguments.in_gamma_k, arguments.in_beta_k),
        rotation_(pipe,
                  {rope_.width, keys_, Greater(ropeAtOnce_, indexAtOnce_),
                   Greater(ropeAtOnce_ * rope_.pitch, indexAtOnce_ * index_.pitch)},
                  arguments.cos, arguments.sin),
        ropeRows_(pipe, rotation_, {ropeAtOnce_, rope_.width, rope_.pitch}, tiling.interleaved != 0),
        indexRows_(pipe, rotation_, {indexAtOnce_, index_.width, index_.pitch}, tiling.index_interleaved != 0) {
    const uint32_t elements = ElementsOfTile(Widest());
    pipe.InitBuffer(in_, 2, elements * sizeof(float));
    pipe.InitBuffer(rows_, elements * sizeof(float));
    pipe.InitBuffer(out_, 2, elements * sizeof(T));
  }

  // Reads what all rows need, and checks the slots of this core's part of all tokens.
  __aicore__ inline void Prepare() {
    latentNorm_.Load();
    kvNorm_.Load();
    indexNorm_.Load();
    ropeRows_.Prepare();
    indexRows_.Prepare();
    slots_.Check(Share(tiling_.tokens, AscendC::GetBlockIdx(), cores_).Take(tiling_.tokens, 1));
  }

  // Normalises latent queries; writes keys to the caches, normalised and rotated.
  __aicore__ inline void Normalise(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t tiles = CeilOf(chunk.count, latents_);
    const Run run = Share(tiles, AscendC::GetBlockIdx(), cores_).Take(tiles, 1);
    for (int64_t i = run.first; i < run.end; ++i) NormaliseLatents(chunk, i * latents_);
    slots_.Load(chunk.first, chunk.count);
    for (int64_t next = 0; next < chunk.count;) {
      const SlotGroup group = slots_.Take(next, chunk.count, keys_, AscendC::GetBlockIdx(), cores_);
      if (group.count > 0) WriteKeys(chunk, group);
    }
  }

  // Rotates the queries of the attention and of the indexer.
  __aicore__ inline void Rotate(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t groups = CeilOf(tiling_.heads, heads_), index_groups = CeilOf(tiling_.index_heads, indexHeads_);
    const int64_t cost = int64_t{heads_} * rope_.width, index_cost = int64_t{indexHeads_} * index_.width;
    Share share(chunk.count * (groups * cost + index_groups * index_cost), AscendC::GetBlockIdx(), cores_);
    Run run = share.Take(chunk.count * groups, cost);
    for (int64_t i = run.first; i < run.end; ++i) RotateQueries(chunk, i / groups, i % groups * heads_);
    run = share.Take(chunk.count * index_groups, index_cost);
    for (int64_t i = run.first; i < run.end; ++i) {
      RotateIndexQueries(chunk, i / index_groups, i % index_groups * indexHeads_);
    }
  }

 private:
  // The widths of rows in device memory and in the unified buffer, in blocks of 32 bytes of 16-bit elements.
  struct Widths {
    uint32_t width;
    uint32_t pitch;

    __aicore__ inline explicit Widths(int64_t elements)
        : width(static_cast<uint32_t>(elements)), pitch(AscendC::AlignUp(width, 2 * kBlock)) {}
  };

  __aicore__ inline uint32_t Widest() const {
    return Greater(Greater(latent_.pitch, kv_.pitch), Greater(rope_.pitch, index_.pitch));
  }

  // Rows of T that lie `stride` elements apart, as floats.
  __aicore__ inline LocalFloats Load(const AscendC::GlobalTensor<T>& from, uint32_t count, const Widths& of,
                                     int64_t stride) {
    BeginLoad();
    CopyIn(0, from, count, of, stride);
    return EndLoad(count, of);
  }

  // The same for the tokens of a group. `from` is the row of its first token.
  __aicore__ inline LocalFloats Load(const AscendC::GlobalTensor<T>& from, const SlotGroup& group, const Widths& of,
                                     int64_t stride) {
    BeginLoad();
    for (uint32_t i = 0; i < group.count; ++i) CopyIn(i, from[group.tokens[i] * stride], 1, of, stride);
    return EndLoad(group.count, of);
  }

  __aicore__ inline void BeginLoad() { loading_ = in_.template AllocTensor<T>(); }

  __aicore__ inline void CopyIn(uint32_t row, const AscendC::GlobalTensor<T>& from, uint32_t count, const Widths& of,
                                int64_t stride) const {
    const auto gap = static_cast<uint32_t>((stride - of.width) * sizeof(T));
    AscendC::DataCopyPad(loading_[row * of.pitch], from,
                         AscendC::DataCopyExtParams{static_cast<uint16_t>(count),
                                                    static_cast<uint32_t>(of.width * sizeof(T)), gap, 0, 0},
                         AscendC::DataCopyPadExtParams<T>{false, 0, 0, T{}});
  }

  __aicore__ inline LocalFloats EndLoad(uint32_t count, const Widths& of) {
    in_.EnQue(loading_);
    loading_ = in_.template DeQue<T>();
    const LocalFloats rows = rows_.Get<float>();
    AscendC::Cast(rows, loading_, AscendC::RoundMode::CAST_NONE, count * of.pitch);
    in_.FreeTensor(loading_);
    return rows;
  }

  // Rounded rows, to be copied to device memory.
  __aicore__ inline AscendC::LocalTensor<T> Round(const LocalFloats& rows, uint32_t elements) {
    const AscendC::LocalTensor<T> out = out_.template AllocTensor<T>();
    AscendC::Cast(out, rows, AscendC::RoundMode::CAST_RINT, elements);
    out_.EnQue(out);
    return out_.template DeQue<T>();
  }

  __aicore__ static inline AscendC::DataCopyExtParams WholeRows(uint32_t count, const Widths& of) {
    return {static_cast<uint16_t>(count), static_cast<uint32_t>(of.width * sizeof(T)), 0, 0, 0};
  }

  __aicore__ inline void NormaliseLatents(const Chunk& chunk, int64_t first) {
    const auto count = static_cast<uint32_t>(Smaller<int64_t>(latents_, chunk.count - first));
    const int64_t place = first * latent_.width;
    const LocalFloats rows = Load(TensorAt<T>(chunk.workspace + tiling_.latent)[place], count, latent_, latent_.width);
    latentNorm_.Apply(rows, count, numbers_);
    const AscendC::LocalTensor<T> out = Round(rows, count * latent_.pitch);
    AscendC::DataCopyPad(TensorAt<T>(chunk.workspace + tiling_.normal)[place], out, WholeRows(count, latent_));
    out_.FreeTensor(out);
  }

  __aicore__ inline void WriteKeys(const Chunk& chunk, const SlotGroup& group) {
    AscendC::PipeBarrier<PIPE_MTE3>();  // earlier tokens may have had the same slots
    const int64_t stride = kv_.width + rope_.width;
    const AscendC::GlobalTensor<T> kv = TensorAt<T>(chunk.workspace + tiling_.kv);
    LocalFloats rows = Load(kv, group, kv_, stride);
    kvNorm_.Apply(rows, group.count, numbers_);
    const AscendC::LocalTensor<T> out = Round(rows, group.count * kv_.pitch);
    const AscendC::GlobalTensor<T> cache = TensorAt<T>(arguments_.kv_cache);
    for (uint32_t i = 0; i < group.count; ++i) {
      AscendC::DataCopyPad(cache[group.slots[i] * kv_.width], out[i * kv_.pitch], WholeRows(1, kv_));
    }
    out_.FreeTensor(out);

    rows = Load(kv[kv_.width], group, rope_, stride);
    rotation_.Load(chunk.first, group);
    ropeRows_.Store(TensorAt<T>(arguments_.kr_cache), rows, group);

    WriteIndexKeys(chunk, group);
  }

  __aicore__ inline void WriteIndexKeys(const Chunk& chunk, const SlotGroup& group) {
    const AscendC::GlobalTensor<float> from = TensorAt<float>(chunk.workspace + tiling_.index_keys);
    LocalFloats rows = in_.template AllocTensor<float>();
    for (uint32_t i = 0; i < group.count; ++i) {
      AscendC::DataCopy(rows[i * index_.pitch], from[group.tokens[i] * index_.pitch], index_.pitch);
    }
    in_.EnQue(rows);
    rows = in_.template DeQue<float>();
    indexNorm_.Apply(rows, group.count, numbers_);
    indexRows_.Store(TensorAt<T>(arguments_.index_k_cache), rows, group);
    in_.FreeTensor(rows);
  }

  // The heads from `first` on, as many as go together.
  __aicore__ inline void RotateQueries(const Chunk& chunk, int64_t token, int64_t first) {
    const auto heads = static_cast<uint32_t>(Smaller<int64_t>(heads_, tiling_.heads - first));
    const int64_t stride = tiling_.depth + rope_.width, head = token * tiling_.heads + first;
    const LocalFloats rows =
        Load(TensorAt<T>(chunk.workspace + tiling_.query)[head * stride + tiling_.depth], heads, rope_, stride);
    rotation_.Load(chunk.first + token, 1);
    ropeRows_.Store(
        TensorAt<T>(arguments_.workspace + tiling_.query_rope)[(chunk.first * tiling_.heads + head) * rope_.width],
        rows, heads, true);
  }

  __aicore__ inline void RotateIndexQueries(const Chunk& chunk, int64_t token, int64_t first) {
    const auto heads = static_cast<uint32_t>(Smaller<int64_t>(indexHeads_, tiling_.index_heads - first));
    const int64_t head = token * tiling_.index_heads + first;
    const LocalFloats rows =
        Load(TensorAt<T>(chunk.workspace + tiling_.index_products)[head * index_.width], heads, index_, index_.width);
    rotation_.Load(chunk.first + token, 1);
    indexRows_.Store(TensorAt<T>(arguments_.workspace +
                                 tiling_.index_query)[(chunk.first * tiling_.index_heads + head) * index_.width],
                     rows, heads, true);
  }

  const SparseAttentionPrologTiling& tiling_;
  const SparseAttentionPrologArguments& arguments_;
  const int64_t cores_;
  const Widths latent_, kv_, rope_, index_;
  // Rows at once: latent queries, heads of a token, its heads of the indexer, keys; those that are rotated.
  const uint32_t latents_, heads_, indexHeads_, keys_, ropeAtOnce_, indexAtOnce_;
  Slots slots_;
  RowNumbers numbers_;
  Norm<T, false> latentNorm_, kvNorm_;
  Norm<T, true> indexNorm_;
  Rotation<T> rotation_;
  RotatedRows<T> ropeRows_, indexRows_;
  AscendC::TQue<AscendC::TPosition::VECIN, 1> in_;
  AscendC::TBuf<> rows_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_;
  AscendC::LocalTensor<T> loading_;
};

// Runs the prolog of all tokens. Behind it all cores have waited for each other.
template <class T>
__aicore__ inline void RunSparseAttentionProlog(const SparseAttentionPrologTiling& tiling,
                                                const SparseAttentionPrologArguments& arguments, AscendC::TPipe& pipe) {
  const Chunks chunks{tiling.tokens, tiling.chunk, arguments.workspace + tiling.chunks, tiling.chunk_bytes};
  const int64_t steps = chunks.Steps(4);
  if ASCEND_IS_AIC {
    SparseAttentionProducts<T> products(tiling, arguments, pipe);
    for (int64_t step = 0; step < steps; ++step) {
      products.Project(chunks.Get(step));
      products.Expand(chunks.Get(step - 2));
      products.Absorb(chunks.Get(step - 3));
      AscendC::SyncAll<false>();
    }
  }
  if ASCEND_IS_AIV {
    SparseAttentionRows<T> rows(tiling, arguments, pipe);
    rows.Prepare();
    for (int64_t step = 0; step < steps; ++step) {
      rows.Normalise(chunks.Get(step - 1));
      rows.Rotate(chunks.Get(step - 3));
      AscendC::SyncAll<false>();
    }
  }
}

}  // namespace opp
