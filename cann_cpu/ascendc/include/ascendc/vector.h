// SPDX-License-Identifier: Apache-2.0
// Element by element: arithmetic of two tensors, of a tensor and a scalar, of one tensor; Duplicate and CreateVecIndex.
//
// Every function has two forms: of the first `count` elements, and of the elements that a mask leaves of each repeat.
#pragma once

#include <cmath>

#include "ascendc/instruction.h"

namespace AscendC {
namespace cpu {

// Integers wrap around.
template <class T, class Function>
constexpr T wrapping(Function function, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<decltype(a + b)>;
    return static_cast<T>(function(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  } else {
    return function(a, b);
  }
}

inline constexpr auto sum = [](auto a, auto b) { return wrapping([](auto x, auto y) { return x + y; }, a, b); };
inline constexpr auto product = [](auto a, auto b) { return wrapping([](auto x, auto y) { return x * y; }, a, b); };
inline constexpr auto larger = [](auto a, auto b) { return a > b ? a : b; };
inline constexpr auto smaller = [](auto a, auto b) { return a < b ? a : b; };

constexpr Strides strides_of(const BinaryRepeatParams& p) {
  return {{p.dstBlkStride, p.src0BlkStride, p.src1BlkStride}, {p.dstRepStride, p.src0RepStride, p.src1RepStride}};
}
constexpr Strides strides_of(const UnaryRepeatParams& p) {
  return {{p.dstBlkStride, p.srcBlkStride}, {p.dstRepStride, p.srcRepStride}};
}

// What math.h applies: functions that the vector unit does not have as instructions.
template <class Dst, class Src, class Function>
void binary(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
            const LocalTensor<Src>& src0, const LocalTensor<Src>& src1, int32_t count) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Src, Src>::run(name, where, Lanes::of_count(n, count), function, consecutive(Use::Write, dst, n),
                                  consecutive(Use::Read, src0, n), consecutive(Use::Read, src1, n));
}

template <class Dst, class Src, class Function>
void binary(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
            const LocalTensor<Src>& src0, const LocalTensor<Src>& src1, const cpu::MaskArgument& mask,
            cpu::RepeatArgument repeats, const BinaryRepeatParams& p) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Src, Src>::run(name, where, Lanes::of_mask(name, where, n, mask, repeats), function,
                                  strided(Use::Write, dst, p.dstBlkStride, p.dstRepStride),
                                  strided(Use::Read, src0, p.src0BlkStride, p.src0RepStride),
                                  strided(Use::Read, src1, p.src1BlkStride, p.src1RepStride));
}

template <class Dst, class Src, class Function>
void unary(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
           const LocalTensor<Src>& src, int32_t count) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Src>::run(name, where, Lanes::of_count(n, count), function, consecutive(Use::Write, dst, n),
                             consecutive(Use::Read, src, n));
}

template <class Dst, class Src, class Function>
void unary(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
           const LocalTensor<Src>& src, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
           const UnaryRepeatParams& p) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Src>::run(name, where, Lanes::of_mask(name, where, n, mask, repeats), function,
                             strided(Use::Write, dst, p.dstBlkStride, p.dstRepStride),
                             strided(Use::Read, src, p.srcBlkStride, p.srcRepStride));
}

}  // namespace cpu

// Each table has a row for every function: its name, and the dtypes that it has.

// Name(dst, src0, src1, count) and Name(dst, src0, src1, mask, repeats, BinaryRepeatParams)
#define ASCENDC_CPU_BINARY_BY(Name, reads_dst, ...)                                                                   \
  template <class T>                                                                                                  \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,  \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name, reads_dst), where, count, 0,          \
                     dst.memory(), &src0.memory(), &src1.memory());                                                   \
  }                                                                                                                   \
  template <class T, bool isSetMask = true>                                                                           \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                        \
            const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& params,             \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name, reads_dst), where,                    \
                     cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(params), 0, dst.memory(), &src0.memory(), \
                     &src1.memory());                                                                                 \
  }

#define ASCENDC_CPU_BINARY(Name, ...) ASCENDC_CPU_BINARY_BY(Name, false, __VA_ARGS__)
ASCENDC_CPU_BINARY(Add, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Sub, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Mul, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Div, half, float)
ASCENDC_CPU_BINARY(Max, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Min, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(And, int16_t, uint16_t)
ASCENDC_CPU_BINARY(Or, int16_t, uint16_t)
ASCENDC_CPU_BINARY(AddRelu, half, float, int16_t)
ASCENDC_CPU_BINARY(SubRelu, half, float, int16_t)
#undef ASCENDC_CPU_BINARY

// With a count, architecture 2201 takes other integers as words of 16 bits: `count` words, whatever T is.
#define ASCENDC_CPU_WORDS(Name)                                                                                      \
  template <class T>                                                                                                 \
    requires(__NPU_ARCH__ == 2201 && cpu::OneOf<T, int8_t, uint8_t, int32_t, uint32_t>)                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
            cpu::Where where = cpu::Where::current()) {                                                              \
    Name(dst.template ReinterpretCast<int16_t>(), src0.template ReinterpretCast<int16_t>(),                          \
         src1.template ReinterpretCast<int16_t>(), count, where);                                                    \
  }
ASCENDC_CPU_WORDS(And)
ASCENDC_CPU_WORDS(Or)
#undef ASCENDC_CPU_WORDS

#define ASCENDC_CPU_ACCUMULATE(Name, ...) ASCENDC_CPU_BINARY_BY(Name, true, __VA_ARGS__)
ASCENDC_CPU_ACCUMULATE(MulAddDst, half, float)    // dst + src0 * src1
ASCENDC_CPU_ACCUMULATE(FusedMulAdd, half, float)  // dst * src0 + src1
ASCENDC_CPU_ACCUMULATE(FusedMulAddRelu, half, float)
#undef ASCENDC_CPU_ACCUMULATE

// The same with the types of dst and src named apart.
template <class T, class U, bool isSetMask = true>
  requires(cpu::OneOf<T, half, float> && std::is_same_v<T, U>)
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
               const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& params,
               cpu::Where where = cpu::Where::current()) {
  MulAddDst<T, isSetMask>(dst, src0, src1, mask, repeats, params, where);
}
template <class T, class U>
  requires(cpu::OneOf<T, half, float> && std::is_same_v<T, U>)
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count,
               cpu::Where where = cpu::Where::current()) {
  MulAddDst<T>(dst, src0, src1, count, where);
}
#undef ASCENDC_CPU_BINARY_BY

// Name(dst, src, count) and Name(dst, src, mask, repeats, UnaryRepeatParams)
#define ASCENDC_CPU_UNARY(Name, ...)                                                                                  \
  template <class T>                                                                                                  \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,                               \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name), where, count, 0, dst.memory(),       \
                     &src.memory());                                                                                  \
  }                                                                                                                   \
  template <class T, bool isSetMask = true>                                                                           \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,                      \
            cpu::RepeatArgument repeats, const UnaryRepeatParams& params, cpu::Where where = cpu::Where::current()) { \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name), where, cpu::chosen<isSetMask>(mask), \
                     repeats, cpu::strides_of(params), 0, dst.memory(), &src.memory());                               \
  }

ASCENDC_CPU_UNARY(Abs, half, float)
ASCENDC_CPU_UNARY(Exp, half, float)
ASCENDC_CPU_UNARY(Ln, half, float)
ASCENDC_CPU_UNARY(Sqrt, half, float)
ASCENDC_CPU_UNARY(Rsqrt, half, float)
ASCENDC_CPU_UNARY(Reciprocal, half, float)
ASCENDC_CPU_UNARY(Relu, half, float, int32_t)
ASCENDC_CPU_UNARY(Not, int16_t, uint16_t)
#undef ASCENDC_CPU_UNARY

// Name(dst, src, scalar, count) and Name(dst, src, scalar, mask, repeats, UnaryRepeatParams)
#define ASCENDC_CPU_SCALAR(Name, ...)                                                                                 \
  template <class T>                                                                                                  \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,              \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name), where, count,                        \
                     cpu::scalar_bits(scalar), dst.memory(), &src.memory());                                          \
  }                                                                                                                   \
  template <class T, bool isSetMask = true>                                                                           \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const cpu::MaskArgument& mask,     \
            cpu::RepeatArgument repeats, const UnaryRepeatParams& params, cpu::Where where = cpu::Where::current()) { \
    cpu::elementwise(cpu::instruction<T, T>(#Name, where, cpu::Operation::Name), where, cpu::chosen<isSetMask>(mask), \
                     repeats, cpu::strides_of(params), cpu::scalar_bits(scalar), dst.memory(), &src.memory());        \
  }

ASCENDC_CPU_SCALAR(Adds, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Muls, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Maxs, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Mins, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(ShiftLeft, int16_t, uint16_t, int32_t, uint32_t)
ASCENDC_CPU_SCALAR(ShiftRight, int16_t, uint16_t, int32_t, uint32_t)
ASCENDC_CPU_SCALAR(LeakyRelu, half, float)
#undef ASCENDC_CPU_SCALAR

namespace cpu {

template <class Dst, class Src>
Instruction axpy(Where where) {
  constexpr bool kIsSame = std::is_same_v<Dst, Src>;
  return instruction<Dst, Src>("Axpy", where, kIsSame ? Operation::Axpy : Operation::AxpyToFloat, true);
}

// Moves bits: of a dtype of 16 or 32 bits.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
template <class T>
Instruction moving(const char* name, Where where, Operation operation) {
  needs<T>(name, where);
  return {name, operation, dtype_of<BitsOf<T>>(), dtype_of<BitsOf<T>>()};
}

}  // namespace cpu

// dst[i] += scalar * src[i]; dst has src's dtype, or is float beside half.
template <class Dst, class Src>
  requires(cpu::OneOf<Src, half, float> && cpu::OneOf<Dst, Src, float>)
void Axpy(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const Src& scalar, const int32_t& count,
          cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::axpy<Dst, Src>(where), where, count, cpu::scalar_bits(scalar), dst.memory(), &src.memory());
}

template <class Dst, class Src, bool isSetMask = true>
  requires(cpu::OneOf<Src, half, float> && cpu::OneOf<Dst, Src, float>)
void Axpy(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const Src& scalar, const cpu::MaskArgument& mask,
          cpu::RepeatArgument repeats, const UnaryRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::axpy<Dst, Src>(where), where, cpu::chosen<isSetMask>(mask), repeats, cpu::strides_of(p),
                   cpu::scalar_bits(scalar), dst.memory(), &src.memory());
}

// dst[i] = scalar
template <class T>
  requires cpu::OneOf<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const int32_t& count,
               cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::moving<T>("Duplicate", where, cpu::Operation::Duplicate), where, count,
                   std::bit_cast<cpu::BitsOf<T>>(scalar), dst.memory());
}

template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
               uint16_t block_stride, uint8_t repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::elementwise(cpu::moving<T>("Duplicate", where, cpu::Operation::Duplicate), where, cpu::chosen<isSetMask>(mask),
                   repeats, {{block_stride}, {repeat_stride}}, std::bit_cast<cpu::BitsOf<T>>(scalar), dst.memory());
}

// dst[i] = first + i, over the elements of all repeats
template <class T>
  requires cpu::OneOf<T, half, float, int16_t, int32_t>
void CreateVecIndex(const LocalTensor<T>& dst, const T& first, uint32_t count,
                    cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::Elementwise<T>::run(
      "CreateVecIndex", where, cpu::Lanes::of_count(n, count),
      [next = cpu::Computed<T>(first)]() mutable { return next++; }, cpu::consecutive(cpu::Use::Write, dst, n));
}

template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, float, int16_t, int32_t>
void CreateVecIndex(const LocalTensor<T>& dst, const T& first, const cpu::MaskArgument& mask,
                    cpu::RepeatArgument repeats, uint16_t block_stride, uint8_t repeat_stride,
                    cpu::Where where = cpu::Where::current()) {
  cpu::Elementwise<T>::run(
      "CreateVecIndex", where,
      cpu::Lanes::of_mask("CreateVecIndex", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
      [next = cpu::Computed<T>(first)]() mutable { return next++; },
      cpu::strided(cpu::Use::Write, dst, block_stride, repeat_stride));
}

// dst[i] = first + i * difference
template <class T>
  requires cpu::OneOf<T, half, float, int16_t, int32_t>
void ArithProgression(const LocalTensor<T>& dst, const T first, const T difference, int32_t count,
                      cpu::Where where = cpu::Where::current()) {
  using Number = cpu::Computed<T>;
  constexpr uint32_t n = cpu::kLanes<T>;
  const auto element = [first = Number(first), step = Number(difference), i = 0]() mutable {
    return cpu::sum(first, cpu::product(step, static_cast<Number>(i++)));
  };
  cpu::Elementwise<T>::run("ArithProgression", where, cpu::Lanes::of_count(n, count), element,
                           cpu::consecutive(cpu::Use::Write, dst, n));
}

}  // namespace AscendC
