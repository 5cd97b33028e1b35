// SPDX-License-Identifier: Apache-2.0
// Quantises rows in the unified buffer to int8.
#pragma once

#include "rows.h"

namespace opp {

// Symmetric: x * 127 / amax, rounded to the nearest integer, ties to even, where amax is the largest |x| of the row,
// and 0 where that is not a number. Rows of T, their pitch a multiple of 32.
template <class T>
class Quantiser {
 public:
  __aicore__ inline Quantiser(AscendC::TPipe& pipe, uint32_t pitch) {
    pipe.InitBuffer(x_, ElementsOfTile(pitch) * sizeof(float));
    pipe.InitBuffer(quotients_, kMaxRows * sizeof(float));
  }

  // `scales` has amax / 127 for each row, by which the integers are to be multiplied, and up to a multiple of eight
  // numbers that mean nothing.
  __aicore__ inline void Apply(const AscendC::LocalTensor<T>& from, const Rows& rows,
                               const AscendC::LocalTensor<int8_t>& to, const AscendC::LocalTensor<half>& scales,
                               RowNumbers& numbers) {
    const LocalFloats x = x_.Get<float>(), work = numbers.Work(), quotients = quotients_.Get<float>();
    const uint32_t all = rows.Elements();
    const auto count = static_cast<int32_t>(all);
    const auto of_rows = static_cast<int32_t>(AscendC::AlignUp(rows.count, kBlock));
    AscendC::Cast(x, from, AscendC::RoundMode::CAST_NONE, all);
    AscendC::Abs(work, x, count);
    // Numbers without sign are in the order of their bits. NaN comes after infinity, and becomes infinity here.
    const AscendC::LocalTensor<int32_t> bits = work.ReinterpretCast<int32_t>();
    AscendC::Mins(bits, bits, kInfinity, count);
    const LocalFloats maxima = numbers.Maxima(work, rows);
    // No quotient of a 16-bit number by 127 lies so close to a tie that this product is on its other side.
    AscendC::Muls(quotients, maxima, 1.0f / 127, of_rows);
    AscendC::Cast(scales, quotients, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(of_rows));
    // 127/128 of a 16-bit number is exact and does not overflow.
    AscendC::Muls(maxima, maxima, 1.0f / 128, of_rows);
    AscendC::Muls(x, x, 127.0f / 128, count);
    CombineWithNumbers<Quotient>(x, x, numbers.Spread(maxima, rows), rows);
    AscendC::Cast(x, x, AscendC::RoundMode::CAST_RINT, all);
    const AscendC::LocalTensor<half> integers = work.ReinterpretCast<half>();
    AscendC::Cast(integers, x, AscendC::RoundMode::CAST_NONE, all);
    AscendC::Cast(to, integers, AscendC::RoundMode::CAST_NONE, all);
  }

 private:
  static constexpr int32_t kInfinity = 0x7f800000;

  AscendC::TBuf<> x_, quotients_;
};

}  // namespace opp
