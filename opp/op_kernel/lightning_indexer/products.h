// SPDX-License-Identifier: Apache-2.0
// The products of query heads and keys, on a cube core.
#pragma once

#include "division.h"

namespace opp {

using namespace AscendC;

// Flags between a cube core and its vector cores: the products of a turn are there, and may be overwritten.
constexpr uint16_t kProductsReady = 0, kProductsRead = 2;

// Multiplies the heads of query tokens with keys: positive products alone go to the workspace.
template <class T>
class IndexerCube {
  using Sum = SumOf<T>;
  static constexpr uint32_t kSlice = 512 / sizeof(T);  // of depth, in L1
  static constexpr uint32_t kStep = 128 / sizeof(T);   // in L0A and L0B

 public:
  __aicore__ inline IndexerCube(const LightningIndexerTiling& tiling, const Sequences& sequences, TPipe& pipe,
                                const IndexerArguments& arguments)
      : tiling_(tiling), sequences_(sequences) {
    query_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(arguments.query));
    key_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(arguments.key));
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ Sum*>(arguments.workspace));
    for (auto& left : left_) pipe.InitBuffer(left.queue, 1, LightningIndexerTiling::kMaxRows * kSlice * sizeof(T));
    pipe.InitBuffer(right_, 2, tiling.columns * kSlice * sizeof(T));
    pipe.InitBuffer(a2_, 2, LightningIndexerTiling::kMaxRows * kStep * sizeof(T));
    pipe.InitBuffer(b2_, 2, tiling.columns * kStep * sizeof(T));
    pipe.InitBuffer(products_, 2, LightningIndexerTiling::kSums * sizeof(Sum));
  }

  __aicore__ inline void Run(const Division& division) {
    const int64_t block = GetBlockIdx(), steps = division.Steps(block);
    Cursor first(tiling_, sequences_, division, 2 * block), second(tiling_, sequences_, division, 2 * block + 1);
    for (int64_t step = 0; step < steps; ++step) {
      const auto turn = static_cast<uint16_t>(step % 2);
      if (step >= 2) CrossCoreWaitFlag(kProductsRead + turn);
      if (first.Next()) MultiplyUnit(first, 0, turn);
      if (second.Next()) MultiplyUnit(second, 1, turn);
      CrossCoreSetFlag<2, PIPE_FIX>(kProductsReady + turn);
    }
    for (int64_t step = steps < 2 ? 0 : steps - 2; step < steps; ++step) {
      CrossCoreWaitFlag(static_cast<uint16_t>(kProductsRead + step % 2));
    }
    for (Left& left : left_) left.Free();
  }

 private:
  // The heads of a vector core's query tokens in L1, which stay there for the next unit.
  struct Left {
    TQue<TPosition::A1, 1> queue;
    LocalTensor<T> held;
    int64_t first_unit = -1;  // of the tile
    uint32_t row, depth;

    __aicore__ inline void Free() {
      if (first_unit >= 0) queue.FreeTensor(held);
      first_unit = -1;
    }
  };

  __aicore__ inline void MultiplyUnit(const Cursor& cursor, uint32_t core, uint32_t turn) {
    const uint32_t columns = cursor.Columns();
    if (columns == 0) return;
    const Tile& tile = cursor.GetTile();
    const auto rows = static_cast<uint32_t>(tile.queries * tiling_.heads);
    const uint64_t to = ((GetBlockIdx() * 2 + core) * 2 + turn) * tiling_.products_of_turn();
    for (uint32_t row = 0; row < rows; row += LightningIndexerTiling::kMaxRows) {
      const uint32_t height = Smaller(LightningIndexerTiling::kMaxRows, rows - row);
      const LocalTensor<Sum> sums = products_.template AllocTensor<Sum>();
      for (uint32_t depth = 0; depth < tiling_.depth; depth += kSlice) {
        const uint32_t slice = Smaller(kSlice, static_cast<uint32_t>(tiling_.depth) - depth);
        CopyQueries(left_[core], tile, row, height, depth, slice);
        CopyKeys(cursor, columns, depth, slice);
        MultiplySlice(sums, left_[core].held, height, columns, depth, slice);
      }
      products_.EnQue(sums);
      CopyOut(sums_[to + uint64_t{row} * tiling_.columns], height, columns);
    }
  }

  __aicore__ inline void CopyQueries(Left& left, const Tile& tile, uint32_t row, uint32_t rows, uint32_t depth,
                                     uint32_t slice) {
    if (left.first_unit == tile.first_unit && left.row == row && left.depth == depth) return;
    left.Free();
    const LocalTensor<T> to = left.queue.template AllocTensor<T>();
    const auto heads = static_cast<uint32_t>(tiling_.heads);
    for (uint32_t at = row; at < row + rows;) {
      const uint32_t query = at / heads, end = Smaller((query + 1) * heads, row + rows);
      const int64_t token = tile.sequence.first_query + tile.first_query + query;
      const int64_t head = (token * tiling_.key_heads + tile.key_head) * heads + at % heads;
      CopyRows(to[(at - row) * kFractalColumns<T>], query_[head * tiling_.depth + depth], tiling_.depth, end - at,
               slice, AlignUp(rows, kFractal));
      at = end;
    }
    left.queue.EnQue(to);
    left.held = left.queue.template DeQue<T>();
    left.first_unit = tile.first_unit;
    left.row = row;
    left.depth = depth;
  }

  __aicore__ inline void CopyKeys(const Cursor& cursor, uint32_t columns, uint32_t depth, uint32_t slice) {
    const LocalTensor<T> to = right_.template AllocTensor<T>();
    uint32_t column = 0;
    for (KeyRun run = cursor.FirstRun(); run.count > 0; run = cursor.RunBehind(run)) {
      const int64_t from = (run.row * tiling_.key_heads + cursor.GetTile().key_head) * tiling_.depth + depth;
      CopyRows(to[column * kFractalColumns<T>], key_[from], tiling_.key_heads * tiling_.depth,
               static_cast<uint32_t>(run.count), slice, columns);
      column = Cursor::ColumnBehind(column, run);
    }
    right_.EnQue(to);
  }

  // Rows that lie `stride` elements apart become those of an NZ matrix of `height` rows.
  __aicore__ static inline void CopyRows(const LocalTensor<T>& to, const GlobalTensor<T>& from, int64_t stride,
                                         uint32_t rows, uint32_t columns, uint32_t height) {
    constexpr int64_t kMaxStride = 65535;  // of the instruction
    const uint32_t together = stride <= kMaxStride ? rows : 1;
    for (uint32_t row = 0; row < rows; row += together) {
      DataCopy(
          to[row * kFractalColumns<T>], from[row * stride],
          Nd2NzParams(1, together, columns, 0, together == 1 ? columns : static_cast<uint32_t>(stride), height, 1, 0));
    }
  }

  __aicore__ inline void MultiplySlice(const LocalTensor<Sum>& sums, const LocalTensor<T>& left, uint32_t rows,
                                       uint32_t columns, uint32_t depth, uint32_t slice) {
    const LocalTensor<T> right = right_.template DeQue<T>();
    const uint32_t height = AlignUp(rows, kFractal);
    for (uint32_t first = 0; first < slice; first += kStep) {
      const uint32_t step = Smaller(kStep, slice - first), deep = CeilDivision(step, kFractalColumns<T>);
      LocalTensor<T> a = a2_.template AllocTensor<T>(), b = b2_.template AllocTensor<T>();
      LoadLeft(a, left[first * height], height, rows, deep);
      LoadRightOfRows(b, right[first * columns], columns, columns, deep);
      a2_.EnQue(a);
      b2_.EnQue(b);
      a = a2_.template DeQue<T>();
      b = b2_.template DeQue<T>();
      Multiply(sums, a, b, rows, columns, step, depth + first == 0);
      a2_.FreeTensor(a);
      b2_.FreeTensor(b);
    }
    right_.FreeTensor(right);
  }

  __aicore__ inline void CopyOut(const GlobalTensor<Sum>& to, uint32_t rows, uint32_t columns) {
    const LocalTensor<Sum> sums = products_.template DeQue<Sum>();
    const FixpipeParamsV220 params(static_cast<uint16_t>(columns), static_cast<uint16_t>(rows),
                                   static_cast<uint16_t>(AlignUp(rows, kFractal)), tiling_.columns, true);
    Fixpipe(to, sums, params);
    products_.FreeTensor(sums);
  }

  __aicore__ static inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

  const LightningIndexerTiling& tiling_;
  const Sequences& sequences_;
  GlobalTensor<T> query_, key_;
  GlobalTensor<Sum> sums_;
  Left left_[2];
  TQue<TPosition::B1, 2> right_;
  TQue<TPosition::A2, 2> a2_;
  TQue<TPosition::B2, 2> b2_;
  TQue<TPosition::CO1, 2> products_;
};

}  // namespace opp
