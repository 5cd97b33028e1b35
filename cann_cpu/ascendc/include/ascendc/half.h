// SPDX-License-Identifier: Apache-2.0
// half and bfloat16_t, exact: every conversion rounds once.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ascendc/types.h"

namespace AscendC::cpu {

// Whether the magnitude of a number of this sign goes up by one in the last place that is kept; `rest` is what is cut
// off, and `half` is half of that place.
constexpr bool rounds_up(RoundMode mode, bool negative, bool odd, uint64_t rest, uint64_t half) {
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      return negative && rest != 0;
    case RoundMode::CAST_CEIL:
      return !negative && rest != 0;
    case RoundMode::CAST_ROUND:
      return rest >= half;
    case RoundMode::CAST_TRUNC:
      return false;
    case RoundMode::CAST_ODD:
      return !odd && rest != 0;
    default:
      return rest > half || (rest == half && odd);
  }
}

// A float in a format of 16 bits, rounded once; past the largest number as IEEE 754 has it for the rounding mode.
template <int exponent_bits, int mantissa_bits>
constexpr uint16_t narrow(float value, RoundMode mode) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  constexpr int kCut = 23 - mantissa_bits;
  constexpr uint32_t kInfinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool negative = bits >> 31;
  const uint16_t sign = negative << 15;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | kInfinity | 1u << (mantissa_bits - 1);
  if (magnitude == 0x7f800000) return sign | kInfinity;

  const int float_exponent = static_cast<int>(magnitude >> 23);
  const uint64_t significand = (magnitude & 0x7fffff) | (float_exponent != 0 ? 0x800000u : 0u);
  const int exponent = (float_exponent != 0 ? float_exponent : 1) - 127 + kBias;  // biased as the result's
  if (exponent > 2 * kBias) {
    const bool to_infinity = rounds_up(mode, negative, true, 1, 1);
    return sign | (mode == RoundMode::CAST_ODD || !to_infinity ? kInfinity - 1 : kInfinity);
  }
  const int subnormal = exponent < 1 ? 1 - exponent : 0;
  const int cut = kCut + subnormal < 40 ? kCut + subnormal : 40;
  uint32_t kept = static_cast<uint32_t>(significand >> cut);
  const uint64_t rest = significand & ((uint64_t{1} << cut) - 1);
  kept += rounds_up(mode, negative, kept & 1, rest, uint64_t{1} << (cut - 1));
  // The implicit bit of a normal number, and a carry out of the mantissa, count the exponent up.
  const uint32_t base = subnormal != 0 ? 0 : static_cast<uint32_t>(exponent - 1) << mantissa_bits;
  return sign | static_cast<uint16_t>(base + kept);
}

constexpr float widen_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) return (sign ? -1.0f : 1.0f) * static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}

constexpr float widen_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// A number of 16 bits. It computes as float does, and a float is rounded to it to nearest even.
template <int exponent_bits, int mantissa_bits, float (*widen)(uint16_t)>
struct Float16 {
  Float16() = default;
  template <class Number>
    requires std::is_arithmetic_v<Number>
  constexpr Float16(Number value) : Float16(static_cast<float>(value), RoundMode::CAST_RINT) {}
  constexpr Float16(float value, RoundMode mode) : bits(narrow<exponent_bits, mantissa_bits>(value, mode)) {}
  constexpr operator float() const { return widen(bits); }

  static constexpr Float16 of_bits(uint16_t bits) {
    Float16 made;
    made.bits = bits;
    return made;
  }

  uint16_t bits;
};

}  // namespace AscendC::cpu

using half = AscendC::cpu::Float16<5, 10, AscendC::cpu::widen_half>;
using bfloat16_t = AscendC::cpu::Float16<8, 7, AscendC::cpu::widen_bfloat16>;

namespace AscendC {

using float16_t = ::half;  // not a global name: arm_neon.h has one

inline float ToFloat(const bfloat16_t& value) { return value; }
inline bfloat16_t ToBfloat16(const float& value) { return value; }

}  // namespace AscendC

// Numbers that this chip does not compute with: kernels for several chips name them, and copy them.
struct fp8_e5m2_t {
  uint8_t bits;
};
struct fp8_e4m3fn_t {
  uint8_t bits;
};
struct fp8_e8m0_t {
  uint8_t bits;
};
struct hifloat8_t {
  uint8_t bits;
};
struct complex32 {
  half real, imag;
};
struct complex64 {
  float real, imag;
};

namespace AscendC {
using ::complex32;
using ::complex64;
using ::fp8_e4m3fn_t;
using ::fp8_e5m2_t;
using ::fp8_e8m0_t;
using ::hifloat8_t;
}  // namespace AscendC
