// SPDX-License-Identifier: Apache-2.0
// Cast: between dtypes, with the rounding modes that each pair has. Integers saturate; NaN becomes 0.
#pragma once

#include <limits>

#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

constexpr uint32_t set_of(RoundMode mode) { return 1u << static_cast<uint32_t>(mode); }
inline constexpr uint32_t kNone = set_of(RoundMode::CAST_NONE);
inline constexpr uint32_t kDirections = set_of(RoundMode::CAST_RINT) | set_of(RoundMode::CAST_FLOOR) |
                                        set_of(RoundMode::CAST_CEIL) | set_of(RoundMode::CAST_ROUND) |
                                        set_of(RoundMode::CAST_TRUNC);

// The rounding modes of a pair of dtypes; none for a pair that the vector unit does not have.
template <class To, class From>
inline constexpr uint32_t kCastModes = 0;
#define ASCENDC_CPU_CAST(From, To, modes) \
  template <>                             \
  inline constexpr uint32_t kCastModes<To, From> = modes;
ASCENDC_CPU_CAST(half, float, kNone)
ASCENDC_CPU_CAST(half, int32_t, kDirections)
ASCENDC_CPU_CAST(half, int16_t, kDirections)
ASCENDC_CPU_CAST(half, int8_t, kDirections | kNone)
ASCENDC_CPU_CAST(half, uint8_t, kDirections | kNone)
ASCENDC_CPU_CAST(float, float, kDirections)
ASCENDC_CPU_CAST(float, half, kDirections | kNone | set_of(RoundMode::CAST_ODD))
ASCENDC_CPU_CAST(float, bfloat16_t, kDirections)
ASCENDC_CPU_CAST(float, int64_t, kDirections)
ASCENDC_CPU_CAST(float, int32_t, kDirections)
ASCENDC_CPU_CAST(float, int16_t, kDirections)
ASCENDC_CPU_CAST(bfloat16_t, float, kNone)
ASCENDC_CPU_CAST(bfloat16_t, int32_t, kDirections)
ASCENDC_CPU_CAST(uint8_t, half, kNone)
ASCENDC_CPU_CAST(int8_t, half, kNone)
ASCENDC_CPU_CAST(int16_t, half, kDirections | kNone)
ASCENDC_CPU_CAST(int16_t, float, kNone)
ASCENDC_CPU_CAST(int32_t, float, kDirections | kNone)
ASCENDC_CPU_CAST(int32_t, int64_t, kNone)
ASCENDC_CPU_CAST(int32_t, int16_t, kNone)
ASCENDC_CPU_CAST(int32_t, half, kDirections | kNone)  // no effect: the product with SetDeqScale's value is rounded
ASCENDC_CPU_CAST(int64_t, int32_t, kNone)
ASCENDC_CPU_CAST(int64_t, float, kDirections)
#undef ASCENDC_CPU_CAST

// A number rounded to an integer.
template <class Float>
Float rounded(Float value, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      return std::floor(value);
    case RoundMode::CAST_CEIL:
      return std::ceil(value);
    case RoundMode::CAST_ROUND:
      return std::round(value);
    case RoundMode::CAST_TRUNC:
      return std::trunc(value);
    default:
      return std::nearbyint(value);
  }
}

template <class Integer>
Integer saturated(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (value != value) return 0;
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();  // 2^63 for int64
  return static_cast<Integer>(value);
}

template <class To, class From>
constexpr To saturated_integer(From value) {
  using Limits = std::numeric_limits<To>;
  if (value < static_cast<From>(Limits::min()) && sizeof(From) > sizeof(To)) return Limits::min();
  if (value > static_cast<From>(Limits::max()) && sizeof(From) > sizeof(To)) return Limits::max();
  return static_cast<To>(value);
}

// An integer as a float, rounded once to the 24 bits that it has.
constexpr float float_of(int64_t value, RoundMode mode) {
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  const int cut = std::bit_width(magnitude) - 24;
  if (cut <= 0) return static_cast<float>(value);
  uint64_t kept = magnitude >> cut;
  const uint64_t rest = magnitude & ((uint64_t{1} << cut) - 1);
  kept += rounds_up(mode, negative, kept & 1, rest, uint64_t{1} << (cut - 1));
  const float scaled = static_cast<float>(kept) * static_cast<float>(uint64_t{1} << cut);
  return negative ? -scaled : scaled;
}

template <class To, class From>
To cast(From value, RoundMode mode) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    return saturated_integer<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    return saturated<To>(rounded(static_cast<double>(static_cast<float>(value)), mode));
  } else if constexpr (std::is_integral_v<From> && std::is_same_v<To, float>) {
    return float_of(value, mode);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
    return rounded(value, mode);
  } else if constexpr (Narrow<To>) {
    return To(static_cast<float>(value), mode);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
Instruction cast_by(Where where, RoundMode mode) {
  if ((kCastModes<To, From> & set_of(mode)) == 0) {
    fail(where, "Cast: this pair of dtypes has no rounding mode %d", static_cast<int>(mode));
  }
  return instruction<To, From>("Cast", where, Operation::Cast);
}

}  // namespace cpu

// By what a Cast of int32_t to half multiplies.
inline void SetDeqScale(half scale, cpu::Where where = cpu::Where::current()) {
  cpu::block(where).deq_scale = static_cast<float>(scale);
}

template <class To, class From>
  requires(cpu::kCastModes<To, From> != 0)
void Cast(const LocalTensor<To>& dst, const LocalTensor<From>& src, const RoundMode& mode, uint32_t count,
          cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::cast_by<To, From>(where, mode), where, count, static_cast<uint32_t>(mode), dst.memory(),
                   &src.memory());
}

template <class To, class From, bool isSetMask = true>
  requires(cpu::kCastModes<To, From> != 0)
void Cast(const LocalTensor<To>& dst, const LocalTensor<From>& src, const RoundMode& mode,
          const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const UnaryRepeatParams& params,
          cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::cast_by<To, From>(where, mode), where, cpu::chosen<isSetMask>(mask), repeats,
                   cpu::strides_of(params), static_cast<uint32_t>(mode), dst.memory(), &src.memory());
}

// Integers of 4 bits are cast from and to half only, in the form with a count, which is even.
inline void Cast(const LocalTensor<int4b_t>& dst, const LocalTensor<half>& src, const RoundMode& mode, uint32_t count,
                 cpu::Where where = cpu::Where::current()) {
  if (((cpu::kDirections | cpu::kNone) & cpu::set_of(mode)) == 0 || count % 2 != 0) {
    cpu::fail(where,
              "Cast: half to int4b_t of %u elements with rounding mode %d; the count must be even, and CAST_ODD is not "
              "supported",
              count, static_cast<int>(mode));
  }
  cpu::check_bytes("Cast", where, cpu::Use::Read, src.memory(), 0, cpu::bytes_of<half>(count));
  cpu::check_bytes("Cast", where, cpu::Use::Write, dst.memory(), 0, count / 2);
  const auto nibble = [&](uint32_t i) {
    const float value = cpu::load<half>(src.memory().data + i * sizeof(half));
    const float integer = value != value ? 0 : cpu::rounded(value, mode);
    return static_cast<uint8_t>(static_cast<int>(integer < -8 ? -8 : integer > 7 ? 7 : integer) & 15);
  };
  for (uint32_t i = 0; i < count; i += 2) {
    cpu::store(dst.memory().data + i / 2, static_cast<uint8_t>(nibble(i) | nibble(i + 1) << 4));
  }
}
inline void Cast(const LocalTensor<half>& dst, const LocalTensor<int4b_t>& src, const RoundMode& mode, uint32_t count,
                 cpu::Where where = cpu::Where::current()) {
  if (mode != RoundMode::CAST_NONE || count % 2 != 0) {
    cpu::fail(where,
              "Cast: int4b_t to half of %u elements with rounding mode %d; the count is even, the mode CAST_NONE",
              count, static_cast<int>(mode));
  }
  cpu::check_bytes("Cast", where, cpu::Use::Read, src.memory(), 0, count / 2);
  cpu::check_bytes("Cast", where, cpu::Use::Write, dst.memory(), 0, cpu::bytes_of<half>(count));
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t both = cpu::load<uint8_t>(src.memory().data + i / 2);
    const int nibble = (i % 2 == 0 ? both : both >> 4) & 15;
    cpu::store(dst.memory().data + i * sizeof(half), half(nibble < 8 ? nibble : nibble - 16));
  }
}

// Name(dst, src0, src1, count) and its mask form, for functions whose result is cast to another dtype.
#define ASCENDC_CPU_BINARY_CAST(Name, ...)                                                                            \
  template <class To, class From>                                                                                     \
    requires cpu::OneOf<void(From, To), __VA_ARGS__>                                                                  \
  void Name(const LocalTensor<To>& dst, const LocalTensor<From>& src0, const LocalTensor<From>& src1, uint32_t count, \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<To, From>(#Name, where, cpu::Operation::Name), where, count, 0, dst.memory(),   \
                     &src0.memory(), &src1.memory());                                                                 \
  }                                                                                                                   \
  template <class To, class From, bool isSetMask = true>                                                              \
    requires cpu::OneOf<void(From, To), __VA_ARGS__>                                                                  \
  void Name(const LocalTensor<To>& dst, const LocalTensor<From>& src0, const LocalTensor<From>& src1,                 \
            const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& params,             \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<To, From>(#Name, where, cpu::Operation::Name), where,                           \
                     cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(params), 0, dst.memory(), &src0.memory(), \
                     &src1.memory());                                                                                 \
  }

ASCENDC_CPU_BINARY_CAST(AddReluCast, void(half, int8_t), void(float, half), void(int16_t, int8_t))
ASCENDC_CPU_BINARY_CAST(SubReluCast, void(half, int8_t), void(float, half), void(int16_t, int8_t))
ASCENDC_CPU_BINARY_CAST(MulCast, void(half, int8_t), void(half, uint8_t))
#undef ASCENDC_CPU_BINARY_CAST

}  // namespace AscendC
