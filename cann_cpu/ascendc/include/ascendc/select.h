// SPDX-License-Identifier: Apache-2.0
// Comparisons, which give a bit for each element, and selection by such bits.
#pragma once

#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

template <class Number>
bool holds(CMPMODE mode, Number a, Number b) {
  switch (mode) {
    case CMPMODE::LT:
      return a < b;
    case CMPMODE::GT:
      return a > b;
    case CMPMODE::EQ:
      return a == b;
    case CMPMODE::LE:
      return a <= b;
    case CMPMODE::GE:
      return a >= b;
    default:
      return a != b;
  }
}

// Integers are only compared for equality.
template <class T>
void check_mode(const char* name, Where where, CMPMODE mode) {
  if (std::is_integral_v<T> && mode != CMPMODE::EQ) fail(where, "%s: int32_t has CMPMODE::EQ only", name);
}

// The lanes of a comparison with a count. The chips before the 310B and the 950 omit the elements after the last whole
// repeat of 256 bytes.
template <class T>
Lanes compared_lanes(const char* name, Where where, uint32_t count) {
  const uint32_t rest = count % kLanes<T>;
  if (__NPU_ARCH__ == 3002 || __NPU_ARCH__ == 3510 || rest == 0) return Lanes::of_count(kLanes<T>, count);
  if (checker() != nullptr) [[unlikely]] {
    fail(where,
         "%s: %u elements are not a multiple of %u, the 256 bytes of a repeat, and the last %u are not compared; round "
         "the "
         "count up",
         name, count, kLanes<T>, rest);
  }
  return Lanes::of_count(kLanes<T>, count - rest);
}

// A byte of dst for eight elements; the bits of elements that do not take part are 0.
template <class T, class Holds>
void compare(const char* name, Where where, const LocalMemory& dst, const Lanes& lanes, const Operand& a,
             const Operand& b, const Holds& holds) {
  constexpr uint32_t n = kLanes<T>;
  needs<T>(name, where);
  if (checker() != nullptr) [[unlikely]] {
    check_vector(name, where, lanes, {a, b});
    check_local(name, where, PIPE_V, Use::Write, dst, 0, lanes.repeats * (n / 8));
  }
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    const auto left = Values<T, n>::read(a, repeat, mask);
    const auto right = Values<T, n>::read(b, repeat, mask);
    uint8_t bits[n / 8] = {};
    for (uint32_t i = 0; i < n; ++i) {
      bits[i / 8] |= static_cast<uint8_t>(mask.has(i) && holds(left.of[i], right.of[i])) << i % 8;
    }
    std::memcpy(dst.data + repeat * sizeof(bits), bits, sizeof(bits));
  }
}

// dst[i] = its bit ? a[i] : b(i-th of the repeat)
template <class T, class Other>
void select(const char* name, Where where, const Operand& dst, const LocalMemory& bits, bool same_bits_for_repeats,
            const Lanes& lanes, const Operand& a, const Other& other) {
  constexpr uint32_t n = kLanes<T>;
  if (checker() != nullptr) [[unlikely]] {
    const uint32_t read = same_bits_for_repeats ? 1 : lanes.repeats;
    check_local(name, where, PIPE_V, Use::Read, bits, 0, read * (n / 8));
    check_vector(name, where, lanes, {dst, a}, true);
  }
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    T chosen[n], others[n];
    Values<T, n>::gather(a, repeat, mask, chosen);
    other(repeat, mask, others);
    const std::byte* selection = bits.data + (same_bits_for_repeats ? 0 : repeat * (n / 8));
    for (uint32_t i = 0; i < n; ++i) {
      if ((selection[i / 8] >> i % 8 & std::byte{1}) == std::byte{0}) chosen[i] = others[i];
    }
    Values<T, n>::scatter(chosen, dst, repeat, mask);
  }
}

template <class T>
void select(Where where, SELMODE mode, const Operand& dst, const LocalMemory& bits, const Lanes& lanes,
            const Operand& src0, const Operand& src1) {
  if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) fail(where, "Select: of two tensors, this mode selects a scalar");
  if (checker() != nullptr) [[unlikely]] {
    if (mode == SELMODE::VSEL_TENSOR_TENSOR_MODE) check_scratch("Select", where);
    check_vector("Select", where, lanes, {src1});
  }
  select<T>("Select", where, dst, bits, mode == SELMODE::VSEL_CMPMASK_SPR, lanes, src0,
            [&](uint32_t repeat, const Mask& mask, T(&others)[kLanes<T>]) {
              Values<T, kLanes<T>>::gather(src1, repeat, mask, others);
            });
}

template <class T>
void select(Where where, SELMODE mode, const Operand& dst, const LocalMemory& bits, const Lanes& lanes,
            const Operand& src0, T scalar) {
  if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE)
    fail(where, "Select: of a tensor and a scalar, this mode selects tensors");
  if (checker() != nullptr) [[unlikely]]
    check_scratch("Select", where);
  select<T>("Select", where, dst, bits, false, lanes, src0, [&](uint32_t, const Mask&, T(&others)[kLanes<T>]) {
    for (T& other : others) other = scalar;
  });
}

}  // namespace cpu

// Bit i of dst: src0[i] and src1[i] compare so.
template <class T, class Bits>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void Compare(const LocalTensor<Bits>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
             uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("Compare", where, mode);
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::compare<T>("Compare", where, dst.memory(), cpu::compared_lanes<T>("Compare", where, count),
                  cpu::consecutive(cpu::Use::Read, src0, n), cpu::consecutive(cpu::Use::Read, src1, n),
                  [mode](auto a, auto b) { return cpu::holds(mode, a, b); });
}

template <class T, class Bits, bool isSetMask = true>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void Compare(const LocalTensor<Bits>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
             const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& p,
             cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("Compare", where, mode);
  cpu::compare<T>("Compare", where, dst.memory(),
                  cpu::Lanes::of_mask("Compare", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
                  cpu::strided(cpu::Use::Read, src0, p.src0BlkStride, p.src0RepStride),
                  cpu::strided(cpu::Use::Read, src1, p.src1BlkStride, p.src1RepStride),
                  [mode](auto a, auto b) { return cpu::holds(mode, a, b); });
}

// Bit i of dst: src[i] and the scalar compare so.
template <class T, class Bits>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void CompareScalar(const LocalTensor<Bits>& dst, const LocalTensor<T>& src, const T scalar, CMPMODE mode,
                   uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("CompareScalar", where, mode);
  constexpr uint32_t n = cpu::kLanes<T>;
  const cpu::Operand operand = cpu::consecutive(cpu::Use::Read, src, n);
  cpu::compare<T>("CompareScalar", where, dst.memory(), cpu::compared_lanes<T>("CompareScalar", where, count), operand,
                  operand,
                  [mode, value = cpu::Computed<T>(scalar)](auto a, auto) { return cpu::holds(mode, a, value); });
}

template <class T, class Bits, bool isSetMask = true>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void CompareScalar(const LocalTensor<Bits>& dst, const LocalTensor<T>& src, const T scalar, CMPMODE mode,
                   const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const UnaryRepeatParams& p,
                   cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("CompareScalar", where, mode);
  const cpu::Operand operand = cpu::strided(cpu::Use::Read, src, p.srcBlkStride, p.srcRepStride);
  cpu::compare<T>("CompareScalar", where, dst.memory(),
                  cpu::Lanes::of_mask("CompareScalar", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
                  operand, operand,
                  [mode, value = cpu::Computed<T>(scalar)](auto a, auto) { return cpu::holds(mode, a, value); });
}

// dst[i] = bit i of selection ? src0[i] : src1[i]. VSEL_CMPMASK_SPR takes the same bits for every repeat.
template <class T, class Bits>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE mode, uint32_t count, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::select<T>(where, mode, cpu::consecutive(cpu::Use::Write, dst, n), selection.memory(),
                 cpu::Lanes::of_count(n, count), cpu::consecutive(cpu::Use::Read, src0, n),
                 cpu::consecutive(cpu::Use::Read, src1, n));
}

template <class T, class Bits, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE mode, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
            const BinaryRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  cpu::select<T>(where, mode, cpu::strided(cpu::Use::Write, dst, p.dstBlkStride, p.dstRepStride), selection.memory(),
                 cpu::Lanes::of_mask("Select", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
                 cpu::strided(cpu::Use::Read, src0, p.src0BlkStride, p.src0RepStride),
                 cpu::strided(cpu::Use::Read, src1, p.src1BlkStride, p.src1RepStride));
}

// dst[i] = bit i of selection ? src0[i] : scalar
template <class T, class Bits>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0, T scalar,
            SELMODE mode, uint32_t count, cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::select<T>(where, mode, cpu::consecutive(cpu::Use::Write, dst, n), selection.memory(),
                 cpu::Lanes::of_count(n, count), cpu::consecutive(cpu::Use::Read, src0, n), scalar);
}

template <class T, class Bits, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0, T scalar,
            SELMODE mode, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& p,
            cpu::Where where = cpu::Where::current()) {
  cpu::select<T>(where, mode, cpu::strided(cpu::Use::Write, dst, p.dstBlkStride, p.dstRepStride), selection.memory(),
                 cpu::Lanes::of_mask("Select", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
                 cpu::strided(cpu::Use::Read, src0, p.src0BlkStride, p.src0RepStride), scalar);
}

}  // namespace AscendC
