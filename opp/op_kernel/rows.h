// SPDX-License-Identifier: Apache-2.0
// Rows of floats in the unified buffer: operations with other rows, with a number for each row, and reductions.
#pragma once

#include "kernel_operator.h"

namespace opp {

constexpr uint32_t kLanes = 64;           // floats that an instruction takes of a row at once
constexpr uint32_t kBlock = 8;            // floats of 32 bytes, in which strides count
constexpr uint32_t kTileElements = 2048;  // of the rows that lie in the unified buffer together
constexpr uint32_t kMaxRows = 64;         // of them

// `count` rows that begin `pitch` elements apart. The first `width` elements of a row are used.
struct Rows {
  uint32_t count;
  uint32_t width;
  uint32_t pitch;  // a multiple of 8; with a count of more than 1 at most 2040

  __aicore__ inline uint32_t Elements() const { return count * pitch; }
  // From row to row, for rows of this pitch.
  __aicore__ inline uint8_t Stride(uint32_t of_pitch) const {
    return count == 1 ? 0 : static_cast<uint8_t>(of_pitch / kBlock);
  }
  __aicore__ inline uint8_t Stride() const { return Stride(pitch); }
};

// How many rows of a pitch lie in the unified buffer together.
__aicore__ inline uint32_t RowsOfTile(uint32_t pitch) {
  const uint32_t rows = kTileElements / pitch;
  return rows > kMaxRows ? kMaxRows : rows > 1 ? rows : 1;
}

struct Sum {
  template <class... Arguments>
  __aicore__ static inline void Run(const Arguments&... arguments) {
    AscendC::Add(arguments...);
  }
};
struct Difference {
  template <class... Arguments>
  __aicore__ static inline void Run(const Arguments&... arguments) {
    AscendC::Sub(arguments...);
  }
};
struct Product {
  template <class... Arguments>
  __aicore__ static inline void Run(const Arguments&... arguments) {
    AscendC::Mul(arguments...);
  }
};
struct Quotient {
  template <class... Arguments>
  __aicore__ static inline void Run(const Arguments&... arguments) {
    AscendC::Div(arguments...);
  }
};
struct Larger {
  template <class... Arguments>
  __aicore__ static inline void Run(const Arguments&... arguments) {
    AscendC::Max(arguments...);
  }
};

using LocalFloats = AscendC::LocalTensor<float>;

// to = x op y, for rows of y that lie y_pitch apart; 0 is the same row for all.
template <class Operation>
__aicore__ inline void Combine(const LocalFloats& to, const LocalFloats& x, const LocalFloats& y, const Rows& rows,
                               uint32_t y_pitch) {
  const AscendC::BinaryRepeatParams strides{1, 1, 1, rows.Stride(), rows.Stride(), rows.Stride(y_pitch)};
  for (uint32_t first = 0; first < rows.width; first += kLanes) {
    const uint64_t lanes = rows.width - first < kLanes ? rows.width - first : kLanes;
    Operation::Run(to[first], x[first], y[first], lanes, static_cast<uint8_t>(rows.count), strides);
  }
}

// The same with a number for each row, which Spread has made eight of.
template <class Operation>
__aicore__ inline void CombineWithNumbers(const LocalFloats& to, const LocalFloats& x, const LocalFloats& numbers,
                                          const Rows& rows) {
  const AscendC::BinaryRepeatParams strides{1, 1, 0, rows.Stride(), rows.Stride(), 1};
  for (uint32_t first = 0; first < rows.width; first += kLanes) {
    const uint64_t lanes = rows.width - first < kLanes ? rows.width - first : kLanes;
    Operation::Run(to[first], x[first], numbers, lanes, static_cast<uint8_t>(rows.count), strides);
  }
}

// The elements of the rows of a pitch that lie in the unified buffer together.
__aicore__ inline uint32_t ElementsOfTile(uint32_t pitch) { return pitch > kTileElements ? pitch : kTileElements; }

// Numbers for rows of at most this pitch, and what they are made with.
class RowNumbers {
 public:
  __aicore__ inline RowNumbers(AscendC::TPipe& pipe, uint32_t pitch) {
    pipe.InitBuffer(work_, ElementsOfTile(pitch) * sizeof(float));
    pipe.InitBuffer(folded_, kTileElements * sizeof(float));  // rows that are longer than what it has of each
    pipe.InitBuffer(numbers_, kMaxRows * sizeof(float));
    pipe.InitBuffer(spread_, kMaxRows * kBlock * sizeof(float));
  }

  // Memory for as many rows; nothing here uses it.
  __aicore__ inline LocalFloats Work() { return work_.Get<float>(); }

  // A number for each row, consecutively.
  __aicore__ inline LocalFloats Numbers() { return numbers_.Get<float>(); }

  // The sums of the rows, in an order that depends on their width alone.
  __aicore__ inline LocalFloats Sums(const LocalFloats& x, const Rows& rows) {
    const LocalFloats folded = Fold<Sum>(x, rows), sums = Clear(rows);
    AscendC::WholeReduceSum(sums, folded, Lanes(rows), static_cast<int32_t>(rows.count), 1, 1, FoldedStride(rows));
    return sums;
  }

  __aicore__ inline LocalFloats Maxima(const LocalFloats& x, const Rows& rows) {
    const LocalFloats folded = Fold<Larger>(x, rows), maxima = Clear(rows);
    AscendC::WholeReduceMax(maxima, folded, Lanes(rows), static_cast<int32_t>(rows.count), 1, 1, FoldedStride(rows),
                            AscendC::ReduceOrder::ORDER_ONLY_VALUE);
    return maxima;
  }

  // Each number eight times, for CombineWithNumbers.
  __aicore__ inline LocalFloats Spread(const LocalFloats& numbers, const Rows& rows) {
    const LocalFloats spread = spread_.Get<float>();
    AscendC::Brcb(spread, numbers, static_cast<uint8_t>(AscendC::CeilDivision(rows.count, kBlock)), {1, kBlock});
    return spread;
  }

 private:
  __aicore__ static inline int32_t Lanes(const Rows& rows) { return rows.width < kLanes ? rows.width : kLanes; }
  __aicore__ static inline int32_t FoldedStride(const Rows& rows) {
    return rows.width <= kLanes ? rows.Stride() : kLanes / kBlock;
  }

  // Rows as wide as an instruction, with what lies beyond them combined with what they have.
  template <class Operation>
  __aicore__ inline LocalFloats Fold(const LocalFloats& x, const Rows& rows) {
    if (rows.width <= kLanes) return x;
    const LocalFloats folded = folded_.Get<float>();
    const auto count = static_cast<uint8_t>(rows.count);
    constexpr uint8_t kStride = kLanes / kBlock;
    AscendC::Adds(folded, x, 0.0f, uint64_t{kLanes}, count, {1, 1, kStride, rows.Stride()});
    for (uint32_t first = kLanes; first < rows.width; first += kLanes) {
      const uint64_t lanes = rows.width - first < kLanes ? rows.width - first : kLanes;
      Operation::Run(folded, folded, x[first], lanes, count,
                     AscendC::BinaryRepeatParams{1, 1, 1, kStride, kStride, rows.Stride()});
    }
    return folded;
  }

  // Spread reads eight numbers at once, and not all may be of rows.
  __aicore__ inline LocalFloats Clear(const Rows& rows) {
    const LocalFloats numbers = Numbers();
    AscendC::Duplicate(numbers, 1.0f, static_cast<int32_t>(AscendC::AlignUp(rows.count, kBlock)));
    return numbers;
  }

  AscendC::TBuf<> work_, folded_, numbers_, spread_;
};

}  // namespace opp
