// SPDX-License-Identifier: Apache-2.0
// The scores of keys and the selection of the best, on a vector core.
#pragma once

#include "best_keys.h"
#include "floats.h"
#include "products.h"

namespace opp {

using namespace AscendC;

// Makes scores of products, and keeps the best.
template <class T, class Value>
class IndexerVector {
  using Sum = SumOf<T>;
  static constexpr bool kQuantised = sizeof(T) == 1;
  static constexpr uint32_t kProducts = 4096;  // that are weighted at a time

 public:
  __aicore__ inline IndexerVector(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                  const IndexerArguments& arguments, uint32_t round)
      : tiling_(tiling),
        sequences_(sequences),
        pieces_(tiling, arguments.workspace),
        last_(LastPairs(tiling, arguments.workspace)),
        is_first_round_(round == 0),
        rows_(kProducts / tiling.columns),
        best_(tiling, pipe, !is_first_round_),
        writer_(tiling, pipe, arguments, round) {
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ Sum*>(arguments.workspace));
    pipe.InitBuffer(products_, 2, kProducts * sizeof(Sum));
    pipe.InitBuffer(scores_, tiling.columns * sizeof(float));
    pipe.InitBuffer(mask_, tiling.columns / 8);
    if (!is_first_round_) {
      pipe.InitBuffer(found_, kLastFloats * sizeof(float));
      pipe.InitBuffer(after_, tiling.columns / 8);
      pipe.InitBuffer(equal_, tiling.columns / 8);
    }
    pipe.InitBuffer(spread_, rows_ * 32);
    weights_.Init(pipe, arguments.weights, tiling.weights, rows_);
    if constexpr (kQuantised) {
      queryScales_.Init(pipe, arguments.query_scales, tiling.query_scales, rows_);
      keyScales_.Init(pipe, arguments.key_scales, tiling.key_scales, tiling.columns, tiling.key_heads);
      pipe.InitBuffer(scalesOfKeys_, tiling.columns * sizeof(float));
      Duplicate(scalesOfKeys_.Get<float>(), 0.0f, static_cast<int32_t>(tiling.columns));
    }
  }

  __aicore__ inline void Run(const Division& division) {
    const int64_t core = GetBlockIdx(), steps = division.Steps(core / 2);
    Cursor cursor(tiling_, sequences_, division, core);
    for (int64_t step = 0; step < steps; ++step) {
      const auto turn = static_cast<uint16_t>(step % 2);
      CrossCoreWaitFlag(kProductsReady + turn);
      if (cursor.Next()) Select(cursor, sums_[(core * 2 + turn) * tiling_.products_of_turn()]);
      CrossCoreSetFlag<2, PIPE_MTE2>(kProductsRead + turn);
    }
  }

 private:
  __aicore__ inline void Select(const Cursor& cursor, const GlobalTensor<Sum>& sums) {
    const Tile& tile = cursor.GetTile();
    if (cursor.BeginsPiece()) {
      begins_tile_ = cursor.BeginsTile();
      for (int64_t query = 0; query < tile.queries; ++query) best_.Clear(query);
    }
    const uint32_t columns = cursor.Columns();
    if (columns > 0) {
      if constexpr (kQuantised) LoadKeyScales(cursor);
      for (int64_t query = 0; query < tile.queries; ++query) {
        const int64_t visible = tile.sequence.Visible(tile.first_query + query);
        if (cursor.FirstRun().position >= visible) continue;
        SumHeads(tile, query, sums[query * tiling_.heads * tiling_.columns], columns);
        OrderNan(columns);
        if (!is_first_round_) LeaveOutFound(cursor, query, columns);
        AddVisible(cursor, query, visible);
      }
    }
    if (!cursor.EndsPiece()) return;
    for (int64_t query = 0; query < tile.queries; ++query) {
      best_.Merge(query);
      if (begins_tile_ && cursor.EndsTile()) {
        writer_.Write(tile, query, best_.Pairs(query));
      } else {
        pieces_.Store(GetBlockIdx(), begins_tile_, query, best_.Pairs(query));
      }
    }
  }

  // scores = the sum over the heads of weight * product
  __aicore__ inline void SumHeads(const Tile& tile, int64_t query, const GlobalTensor<Sum>& sums, uint32_t columns) {
    const LocalTensor<float> scores = scores_.Get<float>();
    Duplicate(scores, 0.0f, static_cast<int32_t>(tiling_.columns));
    const int64_t token = tile.sequence.first_query + tile.first_query + query;
    const int64_t head = (token * tiling_.key_heads + tile.key_head) * tiling_.heads;
    for (int64_t first = 0; first < tiling_.heads; first += rows_) {
      const auto rows = static_cast<uint32_t>(tiling_.heads - first < rows_ ? tiling_.heads - first : rows_);
      const LocalTensor<float> weighted = Weighted(sums[first * tiling_.columns], head + first, rows, columns);
      for (uint32_t left = rows; left > 1;) {
        const uint32_t half_of = left / 2;
        Add(weighted, weighted, weighted[(left - half_of) * columns], static_cast<int32_t>(half_of * columns));
        left -= half_of;
      }
      Add(scores, scores, weighted, static_cast<int32_t>(columns));
      products_.FreeTensor(weighted);
    }
    if constexpr (kQuantised) Mul(scores, scores, scalesOfKeys_.Get<float>(), static_cast<int32_t>(columns));
  }

  // Rows of products, each times the weight of its head.
  __aicore__ inline LocalTensor<float> Weighted(const GlobalTensor<Sum>& sums, int64_t head, uint32_t rows,
                                                uint32_t columns) {
    const auto blocks = static_cast<uint8_t>(columns / 8);
    LocalTensor<Sum> products = products_.template AllocTensor<Sum>();
    DataCopy(
        products, sums,
        DataCopyParams(static_cast<uint16_t>(rows), blocks, static_cast<uint16_t>(tiling_.columns / 8 - blocks), 0));
    products_.EnQue(products);
    const LocalTensor<float> weights = weights_.Load(head, rows);
    if constexpr (kQuantised) {
      Mul(weights, weights, queryScales_.Load(head, rows), static_cast<int32_t>(AlignUp(rows, 8u)));
    }
    const LocalTensor<float> spread = spread_.Get<float>();
    Brcb(spread, weights, static_cast<uint8_t>(CeilDivision(rows, 8u)), BrcbRepeatParams(1, 8));
    products = products_.template DeQue<Sum>();
    const LocalTensor<float> weighted = products.template ReinterpretCast<float>();
    if constexpr (kQuantised) Cast(weighted, products, RoundMode::CAST_RINT, rows * columns);
    for (uint32_t column = 0; column < columns; column += 64) {
      const uint64_t lanes = columns - column < 64 ? columns - column : 64;
      Mul(weighted[column], weighted[column], spread, lanes, static_cast<uint8_t>(rows),
          BinaryRepeatParams(1, 1, 0, blocks, blocks, 1));
    }
    return weighted;
  }

  __aicore__ inline void OrderNan(uint32_t columns) {
    const LocalTensor<float> scores = scores_.Get<float>();
    const LocalTensor<uint8_t> numbers = mask_.Get<uint8_t>();
    const uint32_t count = AlignUp(columns, 64u);
    Compare(numbers, scores, scores, CMPMODE::EQ, count);
    Mins(scores, scores, kLargest, static_cast<int32_t>(count));
    Maxs(scores, scores, -kLargest, static_cast<int32_t>(count));
    AscendC::Select(scores, numbers, scores, Infinity(), SELMODE::VSEL_TENSOR_SCALAR_MODE, count);
  }

  // Scores of keys that the rounds before have found become -infinity: those that are higher than the last one's, and
  // of equal ones those up to its position.
  __aicore__ inline void LeaveOutFound(const Cursor& cursor, int64_t query, uint32_t columns) {
    const LocalTensor<float> last = found_.Get<float>(), scores = scores_.Get<float>();
    WaitFor<HardEvent::S_MTE2>();
    DataCopy(last, last_[RowOf(tiling_, cursor.GetTile(), query) * kLastFloats], kLastFloats);
    WaitFor<HardEvent::MTE2_S>();
    const float score = last.GetValue(kLastFloats - 2);
    SetBitsFrom(ColumnPast(cursor, last.ReinterpretCast<int32_t>().GetValue(kLastFloats - 1), columns));
    const LocalTensor<uint16_t> after = after_.Get<uint16_t>(), equal = equal_.Get<uint16_t>();
    const LocalTensor<uint16_t> stays = mask_.Get<uint16_t>();
    const uint32_t count = AlignUp(columns, 64u);
    const auto words = static_cast<int32_t>(count / 16);
    CompareScalar(equal.ReinterpretCast<uint8_t>(), scores, score, CMPMODE::EQ, count);
    CompareScalar(stays.ReinterpretCast<uint8_t>(), scores, score, CMPMODE::LT, count);
    And(equal, equal, after, words);
    Or(stays, stays, equal, words);
    AscendC::Select(scores, stays.ReinterpretCast<uint8_t>(), scores, -Infinity(), SELMODE::VSEL_TENSOR_SCALAR_MODE,
                    count);
  }

  // Sets the bits of the columns from one on.
  __aicore__ inline void SetBitsFrom(uint32_t column) {
    const LocalTensor<uint16_t> bits = after_.Get<uint16_t>();
    WaitFor<HardEvent::V_S>();
    for (uint32_t first = 0; first < tiling_.columns; first += 16) {
      const uint32_t below = column <= first ? 0 : column - first;
      bits.SetValue(first / 16, static_cast<uint16_t>(below < 16 ? 0xffffu << below : 0));
    }
    WaitFor<HardEvent::S_V>();
  }

  // The first column whose key lies past a position; -1, which stands for no key, is past all.
  __aicore__ inline static uint32_t ColumnPast(const Cursor& cursor, int64_t position, uint32_t columns) {
    if (position < 0) return columns;
    uint32_t column = 0;
    for (KeyRun run = cursor.FirstRun(); run.count > 0; run = cursor.RunBehind(run)) {
      if (run.position > position) return column;
      if (run.position + run.count > position) return column + static_cast<uint32_t>(position - run.position) + 1;
      column = Cursor::ColumnBehind(column, run);
    }
    return columns;
  }

  // Adds the unit's keys that the query token sees. Consecutive runs are added together.
  __aicore__ inline void AddVisible(const Cursor& cursor, int64_t query, int64_t visible) {
    best_.Reserve(query);
    KeyRun together{0, 0, 0};
    uint32_t first = 0, column = 0;  // of what is together, and of the next run
    for (KeyRun run = cursor.FirstRun(); run.count > 0 && run.position < visible; run = cursor.RunBehind(run)) {
      const int64_t count = visible - run.position < run.count ? visible - run.position : run.count;
      if (together.count > 0 && run.position == together.position + together.count &&
          column == first + together.count) {
        together.count += count;
      } else {
        AddRun(query, together, first);
        together = {run.position, count, 0};
        first = column;
      }
      column = Cursor::ColumnBehind(column, run);
    }
    AddRun(query, together, first);
  }

  __aicore__ inline void AddRun(int64_t query, const KeyRun& run, uint32_t column) {
    if (run.count > 0) best_.Add(query, scores_.Get<float>()[column], run.position, static_cast<uint32_t>(run.count));
  }

  __aicore__ inline void LoadKeyScales(const Cursor& cursor) {
    uint32_t column = 0;
    for (KeyRun run = cursor.FirstRun(); run.count > 0; run = cursor.RunBehind(run)) {
      keyScales_.Load(scalesOfKeys_.Get<float>()[column], run.row * tiling_.key_heads + cursor.GetTile().key_head,
                      static_cast<uint32_t>(run.count));
      column = Cursor::ColumnBehind(column, run);
    }
  }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  const Pieces pieces_;
  const GlobalTensor<float> last_;
  const bool is_first_round_;
  const uint32_t rows_;  // of products that are weighted at a time
  BestKeys best_;
  RowWriter<Value> writer_;
  GlobalTensor<Sum> sums_;
  TQue<TPosition::VECIN, 2> products_;
  TBuf<TPosition::VECCALC> scores_, mask_, spread_, scalesOfKeys_;
  TBuf<TPosition::VECCALC> found_, after_, equal_;  // of the rounds before
  Floats weights_, queryScales_, keyScales_;
  bool begins_tile_ = false;  // the piece at work
};

// Merges the runs of tiles that several cores have in part: up to four, of these again four, and so on.
template <class Value>
class IndexerMerge {
 public:
  __aicore__ inline IndexerMerge(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                 const IndexerArguments& arguments, uint32_t round)
      : tiling_(tiling),
        sequences_(sequences),
        pieces_(tiling, arguments.workspace),
        at_a_time_(tiling.kept > LightningIndexerTiling::kMaxKept / 2 ? 2 : 4),  // as the unified buffer holds
        writer_(tiling, pipe, arguments, round) {
    const uint32_t bytes = at_a_time_ * tiling.kept * 2 * sizeof(float);
    pipe.InitBuffer(runs_, 1, bytes);
    pipe.InitBuffer(merged_, bytes);
  }

  __aicore__ inline void Run(const Division& division) {
    for (int64_t apart = 1; apart < division.MaxPieces(); apart *= at_a_time_) {
      if (apart > 1) SyncAll();
      MergeAll(division, apart);
    }
  }

 private:
  // The runs of a tile that are left: those of every so many pieces.
  __aicore__ inline void MergeAll(const Division& division, int64_t apart) {
    int64_t groups = 0;  // the cores take turns
    for (Tiles tiles(tiling_, sequences_); tiles.Next();) {
      const Tile& tile = tiles.Get();
      const int64_t first_core = division.FirstCore(tile), pieces = division.LastCore(tile) - first_core + 1;
      if (pieces <= apart) continue;
      for (int64_t query = 0; query < tile.queries; ++query) {
        for (int64_t first = 0; first < pieces; first += apart * at_a_time_) {
          if (groups++ % tiling_.vector_cores() != GetBlockIdx()) continue;
          const int64_t left = CeilDivision(pieces - first, apart);
          const auto count = static_cast<uint32_t>(left < at_a_time_ ? left : at_a_time_);
          if (count > 1) Merge(division, tile, query, first, apart, count);
          if (apart * at_a_time_ < pieces) {
            if (count > 1) pieces_.Store(first_core + first, first == 0, query, merged_.Get<float>());
          } else {
            writer_.Write(tile, query, merged_.Get<float>());
          }
        }
      }
    }
  }

  __aicore__ inline void Merge(const Division& division, const Tile& tile, int64_t query, int64_t first, int64_t apart,
                               uint32_t count) {
    LocalTensor<float> runs = runs_.AllocTensor<float>();
    const int64_t first_core = division.FirstCore(tile);
    uint16_t lengths[4] = {};
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t piece = first + i * apart;
      // No more than it has keys.
      const int64_t keys = division.Units(tile, first_core + piece, first_core + piece + apart) * tiling_.unit_keys;
      const auto length = static_cast<uint32_t>(Smaller<int64_t>(tiling_.kept, AlignUp(keys, int64_t{32})));
      DataCopy(runs[i * tiling_.kept * 2], pieces_.Of(first_core + piece, piece == 0, query), length * 2);
      lengths[i] = static_cast<uint16_t>(length);
      total += length;
    }
    runs_.EnQue(runs);
    runs = runs_.DeQue<float>();
    const LocalTensor<float> merged = merged_.Get<float>();
    const auto run = [&](uint32_t i) { return runs[(i < count ? i : 0) * tiling_.kept * 2]; };
    MrgSort(merged, {run(0), run(1), run(2), run(3)},
            MrgSort4Info(lengths, false, static_cast<uint16_t>((1u << count) - 1), 1));
    if (total < tiling_.kept) FillWithNone(merged, total, tiling_.kept - total);
    runs_.FreeTensor(runs);
  }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  const Pieces pieces_;
  const uint32_t at_a_time_;
  RowWriter<Value> writer_;
  TQue<TPosition::VECIN, 1> runs_;
  TBuf<TPosition::VECCALC> merged_;
};

}  // namespace opp
