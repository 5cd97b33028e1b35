// SPDX-License-Identifier: Apache-2.0
// The prolog of the lightning indexer: projects tokens, rotates queries and keys, multiplies them with Hadamard
// matrices and quantises them.
//
// Chunks of tokens go through four stages. The cube cores compute the products and the vector cores the rest.
// In each step every stage has another chunk, the one that went through the stage before it in the last step; between
// steps all cores wait for each other. A chunk's intermediate results lie in the workspace, which has two parts for
// each of them: one is written while the other is read.
#include "chunks.h"
#include "kernel_operator.h"
#include "lightning_indexer_prolog_pto_tiling.h"
#include "linear.h"
#include "norm.h"
#include "quantise.h"
#include "rope.h"
#include "slots.h"

using namespace AscendC;

namespace {

using opp::CeilOf;
using opp::Chunk;
using opp::Linear;
using opp::LocalFloats;
using opp::Portion;
using opp::Run;
using opp::Share;
using opp::Smaller;
using opp::TensorAt;
using Tiling = opp::LightningIndexerPrologPtoTiling;

struct Arguments {
  GM_ADDR token_x;
  GM_ADDR q_norm;
  GM_ADDR q_norm_scale;
  GM_ADDR wq_b;
  GM_ADDR wq_b_scale;
  GM_ADDR wk;
  GM_ADDR weights_proj;
  GM_ADDR ln_gamma_k;
  GM_ADDR ln_beta_k;
  GM_ADDR cos;
  GM_ADDR sin;
  GM_ADDR hadamard_q;
  GM_ADDR hadamard_k;
  GM_ADDR slots;
  GM_ADDR query;
  GM_ADDR query_scale;
  GM_ADDR weights;
  GM_ADDR idx_k_cache;
  GM_ADDR idx_k_scale_cache;
  GM_ADDR workspace;
};

// The stages of the cube cores.
template <class T>
class Products {
 public:
  __aicore__ inline Products(const Tiling& tiling, const Arguments& arguments, TPipe& pipe)
      : tiling_(tiling), arguments_(arguments), layers_(pipe) {}

  // Tokens with the weights.
  __aicore__ inline void Project(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t hidden = tiling_.hidden, width = tiling_.heads * tiling_.depth;
    const Linear queries{chunk.count, tiling_.q_lora, width, tiling_.q_lora, width, tiling_.wq_b_in_blocks != 0};
    const Linear keys{chunk.count, hidden, tiling_.depth, hidden, tiling_.key_pitch, tiling_.wk_in_blocks != 0};
    const Linear weights{chunk.count, hidden,        tiling_.heads,
                         hidden,      tiling_.heads, tiling_.weights_proj_in_blocks != 0};
    using opp::LinearLayers;
    Share share(LinearLayers::Cost<int8_t>(queries) + LinearLayers::Cost<T>(keys) + LinearLayers::Cost<T>(weights),
                GetBlockIdx(), GetBlockNum());
    GM_ADDR x = arguments_.token_x + chunk.first * hidden * sizeof(T);
    layers_.template Compute<int8_t, int32_t>(queries, share, arguments_.q_norm + chunk.first * tiling_.q_lora,
                                              arguments_.wq_b, chunk.workspace + tiling_.queries);
    layers_.template Compute<T, float>(keys, share, x, arguments_.wk, chunk.workspace + tiling_.keys);
    layers_.template Compute<T, T>(weights, share, x, arguments_.weights_proj, chunk.workspace + tiling_.weights);
  }

  // Queries and keys with the Hadamard matrices.
  __aicore__ inline void Transform(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t depth = tiling_.depth;
    const Linear queries{chunk.count * tiling_.heads, depth, depth, depth, tiling_.product_pitch, false};
    const Linear keys{chunk.count, depth, depth, depth, tiling_.product_pitch, false};
    using opp::LinearLayers;
    Share share(LinearLayers::Cost<T>(queries) + LinearLayers::Cost<T>(keys), GetBlockIdx(), GetBlockNum());
    layers_.template Compute<T, T>(queries, share, chunk.workspace + tiling_.rotated_queries, arguments_.hadamard_q,
                                   chunk.workspace + tiling_.query_products);
    layers_.template Compute<T, T>(keys, share, chunk.workspace + tiling_.rotated_keys, arguments_.hadamard_k,
                                   chunk.workspace + tiling_.key_products);
  }

 private:
  const Tiling& tiling_;
  const Arguments& arguments_;
  opp::LinearLayers layers_;
};

// The stages of the vector cores. Each of them takes as many rows at once as lie in the unified buffer, or fewer, so
// that all cores have some.
template <class T>
class RowStages {
 public:
  __aicore__ inline RowStages(const Tiling& tiling, const Arguments& arguments, TPipe& pipe)
      : tiling_(tiling),
        arguments_(arguments),
        cores_(GetBlockNum() * GetSubBlockNum()),
        depth_(static_cast<uint32_t>(tiling.depth)),
        pitch_(static_cast<uint32_t>(tiling.key_pitch)),
        productPitch_(static_cast<uint32_t>(tiling.product_pitch)),
        heads_(Portion(tiling.heads * tiling.chunk, Smaller<int64_t>(opp::RowsOfTile(pitch_), tiling.heads), cores_)),
        keys_(Portion(tiling.chunk, Smaller(opp::RowsOfTile(pitch_), kMaxKeys), cores_)),
        rotatedAtOnce_(opp::Greater(heads_, keys_)),
        products_(Portion(tiling.heads * tiling.chunk, opp::RowsOfTile(productPitch_), cores_)),
        cachedKeys_(Smaller(opp::RowsOfTile(productPitch_), kMaxKeys)),
        slots_(pipe, "idx_k_cache_index", arguments.slots, tiling.slot_bytes, tiling.slots_of_row, tiling.capacity),
        numbers_(pipe, productPitch_),
        norm_(pipe, depth_, pitch_, tiling.epsilon, arguments.ln_gamma_k, arguments.ln_beta_k),
        rotation_(pipe, {static_cast<uint32_t>(tiling.rope_depth), keys_, rotatedAtOnce_, rotatedAtOnce_ * pitch_},
                  arguments.cos, arguments.sin),
        rotated_(pipe, rotation_, {rotatedAtOnce_, depth_, pitch_}, tiling.interleaved != 0),
        quantiser_(pipe, productPitch_) {
    pipe.InitBuffer(in_, 2, opp::kTileElements * sizeof(float));
    pipe.InitBuffer(columnScales_, 1, opp::kTileElements * sizeof(float));
    pipe.InitBuffer(rows_, opp::kTileElements * sizeof(float));
    pipe.InitBuffer(weights_, 1, opp::kTileElements * sizeof(half));
    pipe.InitBuffer(quantised_, 2, opp::kTileElements + opp::kMaxRows * sizeof(half) + kMaxKeys * kBlockBytes);
  }

  // Reads what all rows need, and checks the slots of this core's part of all tokens.
  __aicore__ inline void Prepare() {
    norm_.Load();
    rotated_.Prepare();
    slots_.Check(Share(tiling_.tokens, GetBlockIdx(), cores_).Take(tiling_.tokens, 1));
  }

  // Dequantises queries, normalises keys, and rotates both; scales the weights.
  __aicore__ inline void Rotate(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t groups = CeilOf(tiling_.heads, heads_), queries = groups * chunk.count;
    const int64_t keys = CeilOf(chunk.count, keys_);
    const int64_t weights = CeilOf(chunk.count * tiling_.heads, opp::kTileElements);
    const int64_t query_cost = int64_t{heads_} * depth_, key_cost = int64_t{keys_} * depth_;
    Share share(queries * query_cost + keys * key_cost + weights * opp::kTileElements, GetBlockIdx(), cores_);
    Run run = share.Take(queries, query_cost);
    for (int64_t i = run.first; i < run.end; ++i) RotateQueries(chunk, i % chunk.count, i / chunk.count * heads_);
    FreeColumnScales();
    run = share.Take(keys, key_cost);
    for (int64_t i = run.first; i < run.end; ++i) RotateKeys(chunk, i * keys_);
    run = share.Take(weights, opp::kTileElements);
    for (int64_t i = run.first; i < run.end; ++i) ScaleWeights(chunk, i * opp::kTileElements);
  }

  // Quantises queries and keys, and writes the keys to their slots.
  __aicore__ inline void Quantise(const Chunk& chunk) {
    if (chunk.count == 0) return;
    const int64_t tiles = CeilOf(chunk.count * tiling_.heads, products_);
    const Run run = Share(tiles, GetBlockIdx(), cores_).Take(tiles, 1);
    for (int64_t i = run.first; i < run.end; ++i) QuantiseQueries(chunk, i * products_);
    CacheKeys(chunk);
  }

 private:
  static constexpr uint32_t kMaxKeys = opp::SlotGroup::kMax;  // that go through together
  static constexpr uint32_t kBlockBytes = 32;

  // Copies rows that lie side by side in device memory to rows of the unified buffer, with zeros after them.
  template <class Element>
  __aicore__ inline void CopyIn(const LocalTensor<Element>& to, const GlobalTensor<Element>& from,
                                uint32_t rows) const {
    static_assert(sizeof(Element) == sizeof(float), "pitch_ is at most a block of 8 elements longer than a row");
    const uint32_t padding = pitch_ - AlignUp(depth_, opp::kBlock);
    DataCopyPad(
        to, from,
        DataCopyExtParams{static_cast<uint16_t>(rows), static_cast<uint32_t>(depth_ * sizeof(Element)), 0, 0, 0},
        DataCopyPadExtParams<Element>{padding != 0, 0, static_cast<uint8_t>(padding), Element{}});
  }

  // The heads from `first` on, as many as go together.
  __aicore__ inline void RotateQueries(const Chunk& chunk, int64_t token, int64_t first) {
    const auto heads = static_cast<uint32_t>(Smaller<int64_t>(heads_, tiling_.heads - first));
    const auto count = static_cast<int32_t>(heads * pitch_);
    const int64_t head = token * tiling_.heads + first;
    if (first != scaledHead_) LoadColumnScales(first, heads);
    LocalTensor<int32_t> sums = in_.template AllocTensor<int32_t>();
    CopyIn(sums, TensorAt<int32_t>(chunk.workspace + tiling_.queries)[head * depth_], heads);
    in_.EnQue(sums);
    sums = in_.template DeQue<int32_t>();
    const LocalFloats rows = rows_.Get<float>();
    Cast(rows, sums, RoundMode::CAST_RINT, count);
    in_.FreeTensor(sums);
    Muls(rows, rows, TensorAt<float>(arguments_.q_norm_scale).GetValue(chunk.first + token), count);
    Mul(rows, rows, ofColumns_, count);
    rotation_.Load(chunk.first + token, 1);
    rotated_.Store(TensorAt<T>(chunk.workspace + tiling_.rotated_queries)[head * depth_], rows, heads, true);
  }

  __aicore__ inline void LoadColumnScales(int64_t head, uint32_t heads) {
    FreeColumnScales();
    ofColumns_ = columnScales_.AllocTensor<float>();
    CopyIn(ofColumns_, TensorAt<float>(arguments_.wq_b_scale)[head * depth_], heads);
    columnScales_.EnQue(ofColumns_);
    ofColumns_ = columnScales_.DeQue<float>();
    scaledHead_ = head;
  }

  __aicore__ inline void FreeColumnScales() {
    if (scaledHead_ >= 0) columnScales_.FreeTensor(ofColumns_);
    scaledHead_ = -1;
  }

  __aicore__ inline void RotateKeys(const Chunk& chunk, int64_t first) {
    const auto count = static_cast<uint32_t>(Smaller<int64_t>(keys_, chunk.count - first));
    LocalFloats keys = in_.template AllocTensor<float>();
    DataCopy(keys, TensorAt<float>(chunk.workspace + tiling_.keys)[first * pitch_], count * pitch_);
    in_.EnQue(keys);
    keys = in_.template DeQue<float>();
    norm_.Apply(keys, count, numbers_);
    rotation_.Load(chunk.first + first, count);
    rotated_.Store(TensorAt<T>(chunk.workspace + tiling_.rotated_keys)[first * depth_], keys, count, false);
    in_.FreeTensor(keys);
  }

  __aicore__ inline void ScaleWeights(const Chunk& chunk, int64_t first) {
    const auto count = static_cast<uint32_t>(Smaller<int64_t>(opp::kTileElements, chunk.count * tiling_.heads - first));
    const DataCopyExtParams all{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
    LocalTensor<T> weights = in_.template AllocTensor<T>();
    DataCopyPad(weights, TensorAt<T>(chunk.workspace + tiling_.weights)[first], all,
                DataCopyPadExtParams<T>{false, 0, 0, T{}});
    in_.EnQue(weights);
    weights = in_.template DeQue<T>();
    const LocalFloats scaled = rows_.Get<float>();
    Cast(scaled, weights, RoundMode::CAST_NONE, count);
    in_.FreeTensor(weights);
    Muls(scaled, scaled, tiling_.weights_scale, static_cast<int32_t>(count));
    LocalTensor<half> out = weights_.AllocTensor<half>();
    Cast(out, scaled, RoundMode::CAST_RINT, count);
    weights_.EnQue(out);
    out = weights_.DeQue<half>();
    DataCopyPad(TensorAt<half>(arguments_.weights)[chunk.first * tiling_.heads + first], out, all);
    weights_.FreeTensor(out);
  }

  __aicore__ inline void QuantiseQueries(const Chunk& chunk, int64_t first) {
    const auto count = static_cast<uint32_t>(Smaller<int64_t>(products_, chunk.count * tiling_.heads - first));
    LocalTensor<T> products = in_.template AllocTensor<T>();
    DataCopy(products, TensorAt<T>(chunk.workspace + tiling_.query_products)[first * productPitch_],
             count * productPitch_);
    in_.EnQue(products);
    const LocalTensor<int8_t> query = QuantiseRows(count, false);
    const int64_t row = chunk.first * tiling_.heads + first;
    DataCopyPad(TensorAt<int8_t>(arguments_.query)[row * depth_], query,
                DataCopyExtParams{static_cast<uint16_t>(count), depth_, 0, 0, 0});
    DataCopyPad(TensorAt<half>(arguments_.query_scale)[row], ScalesBehind(query),
                DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(half)), 0, 0, 0});
    quantised_.FreeTensor(query);
  }

  // Behind quantised rows lie their scales, and these once more, each at the start of a block of 32 bytes.
  __aicore__ static inline LocalTensor<half> ScalesBehind(const LocalTensor<int8_t>& rows) {
    return rows[opp::kTileElements].ReinterpretCast<half>();
  }
  __aicore__ static inline LocalTensor<half> ScalesApart(const LocalTensor<int8_t>& rows) {
    return ScalesBehind(rows)[opp::kMaxRows];
  }

  // Quantises the rows that in_ has.
  __aicore__ inline LocalTensor<int8_t> QuantiseRows(uint32_t count, bool scales_apart) {
    const LocalTensor<T> products = in_.template DeQue<T>();
    const LocalTensor<int8_t> quantised = quantised_.template AllocTensor<int8_t>();
    const LocalTensor<half> scales = ScalesBehind(quantised);
    quantiser_.Apply(products, {count, depth_, productPitch_}, quantised, scales, numbers_);
    in_.FreeTensor(products);
    if (scales_apart) {
      Brcb(ScalesApart(quantised), scales, static_cast<uint8_t>(CeilDivision(count, opp::kBlock)), {1, opp::kBlock});
    }
    quantised_.EnQue(quantised);
    return quantised_.template DeQue<int8_t>();
  }

  __aicore__ inline void CacheKeys(const Chunk& chunk) {
    slots_.Load(chunk.first, chunk.count);
    for (int64_t next = 0; next < chunk.count;) {
      const opp::SlotGroup group = slots_.Take(next, chunk.count, cachedKeys_, GetBlockIdx(), cores_);
      if (group.count > 0) WriteKeys(chunk, group);
    }
  }

  __aicore__ inline void WriteKeys(const Chunk& chunk, const opp::SlotGroup& group) {
    const GlobalTensor<T> from = TensorAt<T>(chunk.workspace + tiling_.key_products);
    LocalTensor<T> products = in_.template AllocTensor<T>();
    for (uint32_t i = 0; i < group.count; ++i) {
      DataCopy(products[i * productPitch_], from[group.tokens[i] * productPitch_], productPitch_);
    }
    in_.EnQue(products);
    const LocalTensor<int8_t> keys = QuantiseRows(group.count, true);
    const LocalTensor<half> scales = ScalesApart(keys);
    const GlobalTensor<int8_t> cache = TensorAt<int8_t>(arguments_.idx_k_cache);
    const GlobalTensor<half> scale_cache = TensorAt<half>(arguments_.idx_k_scale_cache);
    PipeBarrier<PIPE_MTE3>();  // earlier tokens may have had the same slots
    for (uint32_t i = 0; i < group.count; ++i) {
      DataCopyPad(cache[group.slots[i] * depth_], keys[i * productPitch_], DataCopyExtParams{1, depth_, 0, 0, 0});
      DataCopyPad(scale_cache[group.slots[i]], scales[i * (kBlockBytes / sizeof(half))],
                  DataCopyExtParams{1, sizeof(half), 0, 0, 0});
    }
    quantised_.FreeTensor(keys);
  }

  const Tiling& tiling_;
  const Arguments& arguments_;
  const int64_t cores_;
  const uint32_t depth_;
  const uint32_t pitch_;
  const uint32_t productPitch_;
  // Rows at once: heads of a token, keys, either of them, products of queries, products of keys.
  const uint32_t heads_;
  const uint32_t keys_;
  const uint32_t rotatedAtOnce_;
  const uint32_t products_;
  const uint32_t cachedKeys_;
  opp::Slots slots_;
  opp::RowNumbers numbers_;
  opp::Norm<T, true> norm_;
  opp::Rotation<T> rotation_;
  opp::RotatedRows<T> rotated_;
  opp::Quantiser<T> quantiser_;
  TQue<TPosition::VECIN, 1> in_, columnScales_;
  TBuf<> rows_;
  TQue<TPosition::VECOUT, 1> weights_, quantised_;
  LocalFloats ofColumns_;  // of the heads from scaledHead_ on; of none it is -1
  int64_t scaledHead_ = -1;
};

// Calls a stage for a chunk in each step, and waits for all cores after each step.
template <class T>
__aicore__ inline void RunSteps(const Tiling& tiling, const Arguments& arguments, TPipe& pipe) {
  const opp::Chunks chunks{tiling.tokens, tiling.chunk, arguments.workspace, tiling.chunk_bytes};
  const int64_t steps = chunks.Steps(4);
  if ASCEND_IS_AIC {
    Products<T> products(tiling, arguments, pipe);
    for (int64_t step = 0; step < steps; ++step) {
      products.Project(chunks.Get(step));
      products.Transform(chunks.Get(step - 2));
      SyncAll<false>();
    }
  }
  if ASCEND_IS_AIV {
    RowStages<T> rows(tiling, arguments, pipe);
    rows.Prepare();
    for (int64_t step = 0; step < steps; ++step) {
      rows.Rotate(chunks.Get(step - 1));
      rows.Quantise(chunks.Get(step - 3));
      SyncAll<false>();
    }
  }
}

}  // namespace

extern "C" __global__ __aicore__ void lightning_indexer_prolog_pto(
    GM_ADDR token_x, GM_ADDR q_norm, GM_ADDR q_norm_scale, GM_ADDR wq_b, GM_ADDR wq_b_scale, GM_ADDR wk,
    GM_ADDR weights_proj, GM_ADDR ln_gamma_k, GM_ADDR ln_beta_k, GM_ADDR cos_idx_rope, GM_ADDR sin_idx_rope,
    GM_ADDR hadamard_q, GM_ADDR hadamard_k, GM_ADDR, GM_ADDR, GM_ADDR idx_k_cache_index, GM_ADDR query,
    GM_ADDR query_scale, GM_ADDR weights, GM_ADDR idx_k_cache, GM_ADDR idx_k_scale_cache, GM_ADDR workspace,
    GM_ADDR tiling_address) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  REGISTER_TILING_DEFAULT(Tiling);
  GET_TILING_DATA(tiling, tiling_address);
  const Arguments arguments{token_x,
                            q_norm,
                            q_norm_scale,
                            wq_b,
                            wq_b_scale,
                            wk,
                            weights_proj,
                            ln_gamma_k,
                            ln_beta_k,
                            cos_idx_rope,
                            sin_idx_rope,
                            hadamard_q,
                            hadamard_k,
                            idx_k_cache_index,
                            query,
                            query_scale,
                            weights,
                            idx_k_cache,
                            idx_k_scale_cache,
                            GetUserWorkspace(workspace)};
  TPipe pipe;
  RunSteps<DTYPE_TOKEN_X>(tiling, arguments, pipe);
}
