// SPDX-License-Identifier: Apache-2.0
// The best keys of query tokens: sorted runs, and where they are written.
#pragma once

#include "cores.h"
#include "division.h"

namespace opp {

using namespace AscendC;

// A NaN comes before all numbers, as torch has it: among the keys that are sorted it is infinity, and infinities are
// the last numbers before it.
constexpr float kLargest = 3.40282347e38f;
__aicore__ inline float Infinity() { return 1.0f / 0.0f; }

// Pairs without a key, from one on: -infinity and -1. Counts are multiples of 32.
__aicore__ inline void FillWithNone(const LocalTensor<float>& pairs, uint32_t first, uint32_t count) {
  const uint64_t scores[2] = {0x5555555555555555, 0}, positions[2] = {0xaaaaaaaaaaaaaaaa, 0};
  const auto repeats = static_cast<uint8_t>(count / 32);
  if (count == 0) return;
  Duplicate(pairs[first * 2], -Infinity(), scores, repeats, 1, 8);
  Duplicate(pairs[first * 2].ReinterpretCast<int32_t>(), -1, positions, repeats, 1, 8);
}

// Which row of the result belongs to a query token of a tile.
__aicore__ inline int64_t RowOf(const LightningIndexerTiling& tiling, const Tile& tile, int64_t query) {
  return (tile.sequence.first_query + tile.first_query + query) * tiling.key_heads + tile.key_head;
}

// The last pairs that a round has found for each row. Only the very last one is used.
constexpr uint32_t kLastFloats = 2 * LightningIndexerTiling::kLastPairs;
__aicore__ inline GlobalTensor<float> LastPairs(const LightningIndexerTiling& tiling, GM_ADDR workspace) {
  GlobalTensor<float> pairs;
  pairs.SetGlobalBuffer(
      reinterpret_cast<__gm__ float*>(workspace + tiling.bytes_of_products() + tiling.bytes_of_pieces()));
  return pairs;
}

// Writes the pairs of a query token that a round has found: positions, and their scores if they are asked for. Where
// there are fewer keys, -1 and -infinity.
template <class Value>
class RowWriter {
 public:
  __aicore__ inline RowWriter(const LightningIndexerTiling& tiling, TPipe& pipe, const IndexerArguments& arguments,
                              uint32_t round)
      : tiling_(tiling),
        is_last_round_(round + 1 == tiling.rounds),
        first_(static_cast<int64_t>(round) * tiling.kept),
        count_(static_cast<uint32_t>(is_last_round_ ? tiling.count - first_ : tiling.kept)),
        last_(LastPairs(tiling, arguments.workspace)) {
    indices_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(arguments.indices));
    values_.SetGlobalBuffer(reinterpret_cast<__gm__ Value*>(arguments.values));
    pipe.InitBuffer(outIndices_, 1, (tiling.kept + kLastFloats) * sizeof(int32_t));
    pipe.InitBuffer(scores_, Padded() * sizeof(float));
    Duplicate(scores_.Get<float>(), 0.0f, static_cast<int32_t>(Padded()));
    if (!tiling.return_value) return;
    pipe.InitBuffer(outValues_, 1, tiling.kept * sizeof(Value));
    pipe.InitBuffer(mask_, Padded() / 8);
  }

  __aicore__ inline void Write(const Tile& tile, int64_t query, const LocalTensor<float>& pairs) {
    const int64_t row = RowOf(tiling_, tile, query), to = row * tiling_.count + first_;
    LocalTensor<int32_t> indices = outIndices_.template AllocTensor<int32_t>();
    LocalTensor<float> scores = scores_.Get<float>();
    Extract(scores, indices.ReinterpretCast<uint32_t>(), pairs, static_cast<int32_t>(tiling_.kept / 32));
    const LocalTensor<float> last = indices[tiling_.kept].template ReinterpretCast<float>();
    if (!is_last_round_) DataCopy(last, pairs[tiling_.kept * 2 - kLastFloats], kLastFloats);
    outIndices_.EnQue(indices);
    indices = outIndices_.template DeQue<int32_t>();
    DataCopyPad(indices_[to], indices, Bytes(sizeof(int32_t)));
    if (!is_last_round_) DataCopy(last_[row * kLastFloats], last, kLastFloats);
    outIndices_.FreeTensor(indices);
    if (tiling_.return_value) WriteScores(to, scores);
  }

 private:
  __aicore__ inline uint32_t Padded() const { return AlignUp(tiling_.kept, 64u); }  // repeats
  __aicore__ inline DataCopyExtParams Bytes(uint32_t itemsize) const { return {1, count_ * itemsize, 0, 0, 0}; }

  __aicore__ inline void WriteScores(int64_t to, const LocalTensor<float>& scores) {
    LocalTensor<Value> values = outValues_.template AllocTensor<Value>();
    Replace(scores, Infinity(), CMPMODE::NE, Infinity() - Infinity());
    if constexpr (sizeof(Value) == sizeof(float)) {
      Replace(scores, kLargest, CMPMODE::NE, Infinity());
      Replace(scores, -kLargest, CMPMODE::NE, -Infinity());
      Adds(values, scores, 0.0f, static_cast<int32_t>(tiling_.kept));
    } else {
      Cast(values, scores, RoundMode::CAST_RINT, tiling_.kept);  // also to infinities
    }
    outValues_.EnQue(values);
    values = outValues_.template DeQue<Value>();
    DataCopyPad(values_[to], values, Bytes(sizeof(Value)));
    outValues_.FreeTensor(values);
  }

  // Keeps the scores that compare so.
  __aicore__ inline void Replace(const LocalTensor<float>& scores, float with, CMPMODE mode, float other) {
    const LocalTensor<uint8_t> mask = mask_.Get<uint8_t>();
    CompareScalar(mask, scores, with, mode, Padded());
    Select(scores, mask, scores, other, SELMODE::VSEL_TENSOR_SCALAR_MODE, Padded());
  }

  const LightningIndexerTiling& tiling_;
  const bool is_last_round_;
  const int64_t first_;   // pair of the row
  const uint32_t count_;  // of the pairs that are written
  const GlobalTensor<float> last_;
  GlobalTensor<int32_t> indices_;
  GlobalTensor<Value> values_;
  TQue<TPosition::VECOUT, 1> outIndices_, outValues_;
  TBuf<TPosition::VECCALC> scores_, mask_;
};

// The best keys of each query token of a tile as runs of pairs, a score and its position, the best first.
class BestKeys {
 public:
  static constexpr uint32_t kChunk = 1024;  // scores that are sorted at a time

  // The scores of keys that rounds before have found are -infinity: of equal scores the pairs without a key come first.
  __aicore__ inline BestKeys(const LightningIndexerTiling& tiling, TPipe& pipe, bool some_are_found)
      : tiling_(tiling), held_at_first_(some_are_found ? tiling.kept : 0) {
    pipe.InitBuffer(scores_, tiling.tile_queries * kChunk * sizeof(float));
    pipe.InitBuffer(positions_, tiling.tile_queries * kChunk * sizeof(int32_t));
    pipe.InitBuffer(counting_, tiling.columns * sizeof(int32_t));
    pipe.InitBuffer(pairs_, tiling.floats_of_piece() * sizeof(float));
    for (auto& sorted : sorted_) pipe.InitBuffer(sorted, kChunk * 2 * sizeof(float));
    pipe.InitBuffer(merged_, (tiling.kept + kChunk) * 2 * sizeof(float));
    CreateVecIndex(counting_.Get<int32_t>(), 0, tiling.columns);
  }

  __aicore__ inline LocalTensor<float> Pairs(int64_t query) { return pairs_.Get<float>()[query * tiling_.kept * 2]; }

  // No key yet.
  __aicore__ inline void Clear(int64_t query) {
    FillWithNone(Pairs(query), 0, tiling_.kept);
    held_[query] = held_at_first_;
    filled_[query] = 0;
  }

  // Makes room for the scores of a unit.
  __aicore__ inline void Reserve(int64_t query) {
    if (filled_[query] + tiling_.columns > kChunk) Merge(query);
  }

  // Scores of keys that follow each other, and what fills their last fractal.
  __aicore__ inline void Add(int64_t query, const LocalTensor<float>& scores, int64_t position, uint32_t count) {
    const uint32_t at = filled_[query], padded = AlignUp(count, kFractal);
    Adds(Scores(query)[at], scores, 0.0f, static_cast<int32_t>(padded));
    Adds(Positions(query)[at], counting_.Get<int32_t>(), static_cast<int32_t>(position), static_cast<int32_t>(padded));
    if (const uint32_t valid = count % kFractal) {
      uint64_t mask[2] = {0xffffu & ~((1u << valid) - 1), 0};
      Duplicate(Scores(query)[at + padded - kFractal], -Infinity(), mask, 1, 1, 8);
      Duplicate(Positions(query)[at + padded - kFractal], -1, mask, 1, 1, 8);
    }
    filled_[query] = at + padded;
  }

  // Brings what was added since the last time into the pairs.
  __aicore__ inline void Merge(int64_t query) {
    const uint32_t filled = filled_[query];
    if (filled == 0) return;
    const uint32_t size = filled <= 128 ? 128 : filled <= 512 ? 512 : kChunk;
    if (filled < size) Fill(query, filled, size - filled);
    LocalTensor<float> one = sorted_[0].Get<float>(), other = sorted_[1].Get<float>();
    Sort32(one, Scores(query), Positions(query).ReinterpretCast<uint32_t>(), static_cast<int32_t>(size / 32));
    MergeFours(other, one, 32, size);
    uint32_t run = 128;
    if (size > 128) {
      MergeFours(one, other, 128, size);
      run = 512;
    }
    const LocalTensor<float> runs = size > 128 ? one : other, pairs = Pairs(query), merged = merged_.Get<float>();
    const bool two = size == kChunk;
    const LocalTensor<float> second = two ? runs[run * 2] : runs;
    const auto length = static_cast<uint16_t>(run);
    const uint16_t lengths[4] = {static_cast<uint16_t>(held_[query]), length, length, 0};
    LocalTensor<float> from = merged;
    if (held_[query] > 0) {
      MrgSort(merged, {pairs, runs, second, second}, MrgSort4Info(lengths, false, two ? 7 : 3, 1));
    } else if (two) {
      MrgSort(merged, {runs, second, second, second}, MrgSort4Info(lengths + 1, false, 3, 1));
    } else {
      from = runs;
    }
    held_[query] = Smaller(tiling_.kept, held_[query] + size);
    DataCopy(pairs, from, held_[query] * 2);
    filled_[query] = 0;
  }

 private:
  __aicore__ inline LocalTensor<float> Scores(int64_t query) { return scores_.Get<float>()[query * kChunk]; }
  __aicore__ inline LocalTensor<int32_t> Positions(int64_t query) { return positions_.Get<int32_t>()[query * kChunk]; }

  __aicore__ inline void Fill(int64_t query, uint32_t first, uint32_t count) {
    Duplicate(Scores(query)[first], -Infinity(), static_cast<int32_t>(count));
    Duplicate(Positions(query)[first], -1, static_cast<int32_t>(count));
  }

  // Runs of a length, four by four.
  __aicore__ static inline void MergeFours(const LocalTensor<float>& to, const LocalTensor<float>& from, uint32_t run,
                                           uint32_t size) {
    const auto length = static_cast<uint16_t>(run);
    const uint16_t lengths[4] = {length, length, length, length};
    MrgSort(to, {from, from[run * 2], from[run * 4], from[run * 6]},
            MrgSort4Info(lengths, false, 15, static_cast<uint16_t>(size / (4 * run))));
  }

  const LightningIndexerTiling& tiling_;
  TBuf<TPosition::VECCALC> scores_, positions_, counting_, pairs_, sorted_[2], merged_;
  const uint32_t held_at_first_;
  uint32_t held_[LightningIndexerTiling::kMaxTileQueries] = {};    // of the pairs; those that follow have no key
  uint32_t filled_[LightningIndexerTiling::kMaxTileQueries] = {};  // scores that are not yet among them
};

// Where the runs of tiles lie that several cores have in part: a core has two at most, at the end of its units one that
// begins a tile, and before one that does not.
class Pieces {
 public:
  __aicore__ inline Pieces(const LightningIndexerTiling& tiling, GM_ADDR workspace) : tiling_(tiling) {
    pairs_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace + tiling.bytes_of_products()));
  }

  __aicore__ inline GlobalTensor<float> Of(int64_t core, bool begins_tile, int64_t query) const {
    return pairs_[(core * 2 + (begins_tile ? 1 : 0)) * tiling_.floats_of_piece() + query * tiling_.kept * 2];
  }

  __aicore__ inline void Store(int64_t core, bool begins_tile, int64_t query, const LocalTensor<float>& pairs) const {
    WaitFor<HardEvent::V_MTE3>();
    DataCopy(Of(core, begins_tile, query), pairs, tiling_.kept * 2);
    WaitFor<HardEvent::MTE3_V>();
  }

 private:
  const LightningIndexerTiling& tiling_;
  GlobalTensor<float> pairs_;
};

}  // namespace opp
