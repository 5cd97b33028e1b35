// SPDX-License-Identifier: Apache-2.0
// Functions of the scalar unit on one number: count and find bits, and round a float.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ascendc/cast.h"

namespace AscendC {

template <int bit>
constexpr int64_t GetBitCount(uint64_t value) {
  static_assert(bit == 0 || bit == 1, "GetBitCount: a bit is 0 or 1");
  return std::popcount(bit == 1 ? value : ~value);
}

// The place of the lowest bit of that value, or -1.
template <int bit>
constexpr int64_t GetSFFValue(uint64_t value) {
  static_assert(bit == 0 || bit == 1, "GetSFFValue: a bit is 0 or 1");
  const uint64_t looked_for = bit == 1 ? value : ~value;
  return looked_for == 0 ? -1 : std::countr_zero(looked_for);
}

constexpr int64_t CountLeadingZero(uint64_t value) { return std::countl_zero(value); }

// The bits below the sign that are equal to it, or -1 if all are.
constexpr int64_t CountBitsCntSameAsSignBit(int64_t value) {
  if (value == 0 || value == -1) return -1;
  return std::countl_zero(static_cast<uint64_t>(value < 0 ? ~value : value)) - 1;
}

// The names of CANN before 9.
template <int bit>
constexpr int64_t ScalarGetCountOfValue(uint64_t value) {
  return GetBitCount<bit>(value);
}
template <int bit>
constexpr int64_t ScalarGetSFFValue(uint64_t value) {
  return GetSFFValue<bit>(value);
}
constexpr int64_t ScalarCountLeadingZero(uint64_t value) { return CountLeadingZero(value); }

// The rounding modes that the scalar unit has: fewer than the vector unit.
template <class From, class To, RoundMode mode>
  requires(std::is_same_v<From, float> &&
           ((std::is_same_v<To, half> && mode == RoundMode::CAST_ODD) ||
            (std::is_same_v<To, int32_t> && (mode == RoundMode::CAST_ROUND || mode == RoundMode::CAST_CEIL ||
                                             mode == RoundMode::CAST_FLOOR || mode == RoundMode::CAST_RINT))))
To ScalarCast(From value) {
  return cpu::cast<To>(value, mode);
}

}  // namespace AscendC
