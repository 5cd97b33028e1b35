// SPDX-License-Identifier: Apache-2.0
// Products of rows with weight matrices, as linear layers compute them: the cube core's part.
#pragma once

#include "cores.h"
#include "matrix.h"

namespace opp {

// x [rows, depth] times a weight [depth, columns], which lies row by row or in FRACTAL_NZ. Rows of x and of the result
// begin so many elements apart.
struct Linear {
  int64_t rows;
  int64_t depth;
  int64_t columns;
  int64_t x_stride;
  int64_t out_stride;
  bool in_blocks;  // FRACTAL_NZ
};

// Computes products in tiles whose sums fill half of L0C. Factors go through L1 and L0 in pieces, two buffers of each.
class LinearLayers {
 public:
  __aicore__ inline explicit LinearLayers(AscendC::TPipe& pipe) {
    pipe.InitBuffer(x1_, kBuffers, kRows * kRowBytesOfL1);
    pipe.InitBuffer(weight1_, kBuffers, kColumns * kRowBytesOfL1);
    pipe.InitBuffer(x2_, kBuffers, kRows * kRowBytesOfL0);
    pipe.InitBuffer(weight2_, kBuffers, kColumns * kRowBytesOfL0);
    pipe.InitBuffer(sums_, kBuffers, kRows * kColumns * sizeof(float));
  }

  // What a product costs, in rows of 32 bytes of the weight, which is read once for each tile of rows.
  template <class T>
  __aicore__ static inline int64_t Cost(const Linear& product) {
    return Tiles(product) * Units<T>(product) * UnitCost(product);
  }

  // Computes the core's part of the product. Sums of int8_t are int32_t, and so is Out; others are float, and Out is
  // that or T, to which they are rounded.
  template <class T, class Out>
  __aicore__ inline void Compute(const Linear& product, Share& share, GM_ADDR x, GM_ADDR weight, GM_ADDR out) {
    const int64_t units = Units<T>(product), width = UnitColumns<T>(product);
    const Run run = share.Take(Tiles(product) * units, UnitCost(product));
    AscendC::GlobalTensor<T> left, right;
    AscendC::GlobalTensor<Out> result;
    left.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
    right.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(weight));
    result.SetGlobalBuffer(reinterpret_cast<__gm__ Out*>(out));
    for (int64_t i = run.first; i < run.end;) {
      const int64_t row = i / units * kRows, unit = i % units;
      const auto rows = static_cast<uint32_t>(Smaller<int64_t>(kRows, product.rows - row));
      const int64_t most = product.in_blocks ? kColumns : MostColumns<T>(rows);
      const int64_t count = Smaller(Smaller(most / width, units - unit), run.end - i);
      const int64_t column = unit * width, columns = Smaller(count * width, product.columns - column);
      ComputeTile(product, left, right, result, {row, column, rows, static_cast<uint32_t>(columns)});
      i += count;
    }
  }

 private:
  static constexpr uint32_t kBuffers = 2;                              // one is filled while the other is read
  static constexpr uint32_t kRows = 128, kColumns = 128;               // of a tile of many rows
  static constexpr uint32_t kRowBytesOfL1 = 512, kRowBytesOfL0 = 256;  // of its x; the weight has as deep columns
  static constexpr int64_t kMaxStride = 65535;                         // that a copy to fractals takes

  // A tile of the result.
  struct Tile {
    int64_t row;
    int64_t column;
    uint32_t rows;
    uint32_t columns;
  };

  // Few rows have sums for more columns: longer pieces of the weight's rows, of up to 512 bytes, are copied at once.
  template <class T>
  __aicore__ static inline uint32_t MostColumns(uint32_t rows) {
    return kColumns * (rows <= kRows / 4 && sizeof(T) == 1 ? 4 : rows <= kRows / 2 ? 2 : 1);
  }
  // Elements of a column of the weight that go through a memory at once; more columns are less deep.
  template <class T>
  __aicore__ static inline uint32_t Depth(uint32_t row_bytes, uint32_t columns) {
    return row_bytes / sizeof(T) / (columns > 2 * kColumns ? 4 : columns > kColumns ? 2 : 1);
  }

  __aicore__ static inline int64_t Tiles(const Linear& product) { return (product.rows + kRows - 1) / kRows; }

  // Columns that one core has, or several units of them: of blocks a column of fractals, which lies side by side in
  // memory; of rows as many as a tile has, for a short piece of a row takes as long as a longer one.
  template <class T>
  __aicore__ static inline int64_t UnitColumns(const Linear& product) {
    return product.in_blocks ? kFractalColumns<T> : kColumns;
  }
  template <class T>
  __aicore__ static inline int64_t Units(const Linear& product) {
    const int64_t columns = UnitColumns<T>(product);
    return (product.columns + columns - 1) / columns;
  }
  __aicore__ static inline int64_t UnitCost(const Linear& product) {
    constexpr int64_t kPieceOfRow = 8;
    return product.in_blocks ? product.depth : product.depth * kPieceOfRow;
  }

  template <class T, class Out>
  __aicore__ inline void ComputeTile(const Linear& product, const AscendC::GlobalTensor<T>& x,
                                     const AscendC::GlobalTensor<T>& weight, const AscendC::GlobalTensor<Out>& out,
                                     const Tile& tile) {
    const int64_t most = Depth<T>(kRowBytesOfL1, tile.columns);
    const AscendC::LocalTensor<SumOf<T>> sums = sums_.AllocTensor<SumOf<T>>();
    for (int64_t first = 0; first < product.depth; first += most) {
      const auto depth = static_cast<uint32_t>(Smaller(most, product.depth - first));
      CopyX(product, x[tile.row * product.x_stride + first], tile.rows, depth);
      CopyWeight(product, weight, first, depth, tile);
      MultiplyPieces<T>(sums, tile, depth, first == 0);
    }
    sums_.EnQue(sums);
    CopyOut<SumOf<T>>(out[tile.row * product.out_stride + tile.column], product.out_stride, tile);
  }

  template <class T>
  __aicore__ inline void CopyX(const Linear& product, const AscendC::GlobalTensor<T>& from, uint32_t rows,
                               uint32_t depth) {
    const AscendC::LocalTensor<T> to = x1_.AllocTensor<T>();
    CopyMatrix(to, from, rows, depth, product.x_stride, AscendC::AlignUp(rows, kFractal));
    x1_.EnQue(to);
  }

  template <class T>
  __aicore__ inline void CopyWeight(const Linear& product, const AscendC::GlobalTensor<T>& weight, int64_t first,
                                    uint32_t depth, const Tile& tile) {
    constexpr uint32_t kWidth = kFractalColumns<T>;
    const AscendC::LocalTensor<T> to = weight1_.AllocTensor<T>();
    const uint32_t height = AscendC::AlignUp(depth, kSquare<T>);
    if (product.in_blocks) {
      const int64_t stored = AscendC::AlignUp(product.depth, static_cast<int64_t>(kFractal));
      for (uint32_t i = 0; i * kWidth < tile.columns; ++i) {
        const int64_t stripe = tile.column / kWidth + i;
        AscendC::DataCopy(to[i * height * kWidth], weight[(stripe * stored + first) * kWidth], depth * kWidth);
      }
    } else {
      CopyMatrix(to, weight[first * product.columns + tile.column], depth, tile.columns, product.columns, height);
    }
    weight1_.EnQue(to);
  }

  // Rows that lie `stride` elements apart, to columns of fractals with `height` rows.
  template <class T>
  __aicore__ static inline void CopyMatrix(const AscendC::LocalTensor<T>& to, const AscendC::GlobalTensor<T>& from,
                                           uint32_t rows, uint32_t columns, int64_t stride, uint32_t height) {
    if (stride <= kMaxStride) {
      AscendC::DataCopy(to, from,
                        AscendC::Nd2NzParams(1, static_cast<uint16_t>(rows), static_cast<uint16_t>(columns), 0,
                                             static_cast<uint16_t>(stride), static_cast<uint16_t>(height), 1, 0));
      return;
    }
    for (uint32_t i = 0; i < rows; ++i) {
      CopyMatrix(to[i * kFractalColumns<T>], from[i * stride], 1, columns, columns, height);
    }
  }

  // Adds the product of what lies in L1 to the sums.
  template <class T>
  __aicore__ inline void MultiplyPieces(const AscendC::LocalTensor<SumOf<T>>& sums, const Tile& tile, uint32_t depth,
                                        bool from_zero) {
    constexpr uint32_t kWidth = kFractalColumns<T>;
    const uint32_t most = Depth<T>(kRowBytesOfL0, tile.columns);
    const AscendC::LocalTensor<T> x = x1_.DeQue<T>(), weight = weight1_.DeQue<T>();
    const uint32_t height = AscendC::AlignUp(tile.rows, kFractal), weight_height = AscendC::AlignUp(depth, kSquare<T>);
    for (uint32_t first = 0; first < depth; first += most) {
      const uint32_t count = Smaller(most, depth - first);
      const AscendC::LocalTensor<T> left = x2_.AllocTensor<T>(), right = weight2_.AllocTensor<T>();
      LoadLeft(left, x[first * height], height, tile.rows, AscendC::CeilDivision(count, kWidth));
      LoadRight(right, weight[first * kWidth], weight_height, count, AscendC::CeilDivision(tile.columns, kWidth));
      x2_.EnQue(left);
      weight2_.EnQue(right);
      Multiply(sums, x2_.DeQue<T>(), weight2_.DeQue<T>(), tile.rows, AscendC::AlignUp(tile.columns, kSquare<T>), count,
               from_zero && first == 0);
      x2_.FreeTensor(left);
      weight2_.FreeTensor(right);
    }
    x1_.FreeTensor(x);
    weight1_.FreeTensor(weight);
  }

  template <class Sum, class Out>
  __aicore__ inline void CopyOut(const AscendC::GlobalTensor<Out>& out, int64_t stride, const Tile& tile) {
    const AscendC::LocalTensor<Sum> sums = sums_.DeQue<Sum>();
    AscendC::FixpipeParamsV220 params(static_cast<uint16_t>(tile.columns), static_cast<uint16_t>(tile.rows),
                                      static_cast<uint16_t>(AscendC::AlignUp(tile.rows, kFractal)),
                                      static_cast<uint32_t>(stride), false);
    if constexpr (AscendC::IsSameType<Out, half>::value) params.quantPre = QuantMode_t::F322F16;
    if constexpr (AscendC::IsSameType<Out, bfloat16_t>::value) params.quantPre = QuantMode_t::F322BF16;
    AscendC::Fixpipe(out, sums, params);
    sums_.FreeTensor(sums);
  }

  AscendC::TQue<AscendC::TPosition::A1, 1> x1_;
  AscendC::TQue<AscendC::TPosition::B1, 1> weight1_;
  AscendC::TQue<AscendC::TPosition::A2, 1> x2_;
  AscendC::TQue<AscendC::TPosition::B2, 1> weight2_;
  AscendC::TQue<AscendC::TPosition::CO1, 1> sums_;
};

}  // namespace opp
