// SPDX-License-Identifier: Apache-2.0
// Comparisons, which give a bit for each element, and selection by such bits.
#pragma once

#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

// Integers are only compared for equality.
template <class T>
void check_mode(const char* name, Where where, CMPMODE mode) {
  needs<T>(name, where);
  if (std::is_integral_v<T> && mode != CMPMODE::EQ) fail(where, "%s: int32_t has CMPMODE::EQ only", name);
}

// How many elements a comparison with a count compares. The chips before the 310B and the 950 omit the elements after
// the last whole repeat of 256 bytes.
template <class T>
uint32_t compared(const char* name, Where where, uint32_t count) {
  const uint32_t rest = count % kLanes<T>;
  if (__NPU_ARCH__ == 3002 || __NPU_ARCH__ == 3510 || rest == 0) return count;
  if (checker() != nullptr) [[unlikely]] {
    fail(where,
         "%s: %u elements are not a multiple of %u, the 256 bytes of a repeat, and the last %u are not compared; round "
         "the "
         "count up",
         name, count, kLanes<T>, rest);
  }
  return count - rest;
}

}  // namespace cpu

// Bit i of dst: src0[i] and src1[i] compare so.
template <class T, class Bits>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void Compare(const LocalTensor<Bits>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
             uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("Compare", where, mode);
  cpu::compare("Compare", where, cpu::dtype_of<T>(), mode, cpu::compared<T>("Compare", where, count), 0, dst.memory(),
               src0.memory(), &src1.memory());
}

template <class T, class Bits, bool isSetMask = true>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void Compare(const LocalTensor<Bits>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
             const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& p,
             cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("Compare", where, mode);
  cpu::compare("Compare", where, cpu::dtype_of<T>(), mode, cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(p), 0,
               dst.memory(), src0.memory(), &src1.memory());
}

// Bit i of dst: src[i] and the scalar compare so.
template <class T, class Bits>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void CompareScalar(const LocalTensor<Bits>& dst, const LocalTensor<T>& src, const T scalar, CMPMODE mode,
                   uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("CompareScalar", where, mode);
  cpu::compare("CompareScalar", where, cpu::dtype_of<T>(), mode, cpu::compared<T>("CompareScalar", where, count),
               cpu::scalar_bits(scalar), dst.memory(), src.memory(), nullptr);
}

template <class T, class Bits, bool isSetMask = true>
  requires(cpu::OneOf<T, half, float, int32_t> && std::is_integral_v<Bits>)
void CompareScalar(const LocalTensor<Bits>& dst, const LocalTensor<T>& src, const T scalar, CMPMODE mode,
                   const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const UnaryRepeatParams& p,
                   cpu::Where where = cpu::Where::current()) {
  cpu::check_mode<T>("CompareScalar", where, mode);
  cpu::compare("CompareScalar", where, cpu::dtype_of<T>(), mode, cpu::chosen<isSetMask>(mask), repeats,
               cpu::strides_of(p), cpu::scalar_bits(scalar), dst.memory(), src.memory(), nullptr);
}

// dst[i] = bit i of selection ? src0[i] : src1[i]. VSEL_CMPMASK_SPR takes the same bits for every repeat.
template <class T, class Bits>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE mode, uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::select(where, cpu::dtype_of<T>(), mode, count, 0, dst.memory(), selection.memory(), src0.memory(),
              &src1.memory());
}

template <class T, class Bits, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE mode, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
            const BinaryRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  cpu::select(where, cpu::dtype_of<T>(), mode, cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(p), 0,
              dst.memory(), selection.memory(), src0.memory(), &src1.memory());
}

// dst[i] = bit i of selection ? src0[i] : scalar
template <class T, class Bits>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0, T scalar,
            SELMODE mode, uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::select(where, cpu::dtype_of<T>(), mode, count, std::bit_cast<cpu::BitsOf<T>>(scalar), dst.memory(),
              selection.memory(), src0.memory(), nullptr);
}

template <class T, class Bits, bool isSetMask = true>
  requires cpu::OneOf<T, half, float>
void Select(const LocalTensor<T>& dst, const LocalTensor<Bits>& selection, const LocalTensor<T>& src0, T scalar,
            SELMODE mode, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& p,
            cpu::Where where = cpu::Where::current()) {
  cpu::select(where, cpu::dtype_of<T>(), mode, cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(p),
              std::bit_cast<cpu::BitsOf<T>>(scalar), dst.memory(), selection.memory(), src0.memory(), nullptr);
}

}  // namespace AscendC
