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
inline constexpr auto difference = [](auto a, auto b) { return wrapping([](auto x, auto y) { return x - y; }, a, b); };
inline constexpr auto product = [](auto a, auto b) { return wrapping([](auto x, auto y) { return x * y; }, a, b); };
inline constexpr auto quotient = [](auto a, auto b) { return a / b; };
inline constexpr auto larger = [](auto a, auto b) { return a > b ? a : b; };
inline constexpr auto smaller = [](auto a, auto b) { return a < b ? a : b; };
inline constexpr auto bits_of_both = [](auto a, auto b) { return a & b; };
inline constexpr auto bits_of_either = [](auto a, auto b) { return a | b; };
inline constexpr auto other_bits = [](auto a) { return ~a; };
inline constexpr auto positive_part = [](auto a) { return a <= decltype(a){} ? decltype(a){} : a; };  // NaN stays
inline constexpr auto positive_sum = [](auto a, auto b) { return positive_part(sum(a, b)); };
inline constexpr auto positive_difference = [](auto a, auto b) { return positive_part(difference(a, b)); };
inline constexpr auto shifted_left = [](auto a, auto bits) {
  return static_cast<decltype(a)>(static_cast<std::make_unsigned_t<decltype(a)>>(a) << bits);
};
inline constexpr auto shifted_right = [](auto a, auto bits) { return static_cast<decltype(a)>(a >> bits); };
inline constexpr auto leaky = [](auto a, auto slope) { return a > 0 ? a : a * slope; };
inline constexpr auto absolute = [](auto a) { return std::abs(a); };
inline constexpr auto exponential = [](auto a) { return std::exp(a); };
inline constexpr auto logarithm = [](auto a) { return std::log(a); };
inline constexpr auto square_root = [](auto a) { return std::sqrt(a); };
inline constexpr auto inverse_square_root = [](auto a) { return 1 / std::sqrt(a); };
inline constexpr auto inverse = [](auto a) { return 1 / a; };
// Functions of the old value of dst and the two sources.
inline constexpr auto plus_product = [](auto dst, auto a, auto b) { return dst + a * b; };
inline constexpr auto product_plus = [](auto dst, auto a, auto b) { return dst * a + b; };
inline constexpr auto positive_product_plus = [](auto dst, auto a, auto b) { return positive_part(dst * a + b); };

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
void accumulate(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
                const LocalTensor<Src>& src0, const LocalTensor<Src>& src1, int32_t count) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Dst, Src, Src>::run(name, where, Lanes::of_count(n, count), function,
                                       consecutive(Use::Write, dst, n), consecutive(Use::Read, dst, n),
                                       consecutive(Use::Read, src0, n), consecutive(Use::Read, src1, n));
}

template <class Dst, class Src, class Function>
void accumulate(const char* name, Where where, const Function& function, const LocalTensor<Dst>& dst,
                const LocalTensor<Src>& src0, const LocalTensor<Src>& src1, const cpu::MaskArgument& mask,
                cpu::RepeatArgument repeats, const BinaryRepeatParams& p) {
  constexpr uint32_t n = kLanes<Dst, Src>;
  Elementwise<Dst, Dst, Src, Src>::run(name, where, Lanes::of_mask(name, where, n, mask, repeats), function,
                                       strided(Use::Write, dst, p.dstBlkStride, p.dstRepStride),
                                       strided(Use::Read, dst, p.dstBlkStride, p.dstRepStride),
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

// Each table has a row for every function: its name, what it does to the elements, and the dtypes that it has.

// Name(dst, src0, src1, count) and Name(dst, src0, src1, mask, repeats, BinaryRepeatParams); `how` is cpu::binary, or
// cpu::accumulate for functions that also read dst.
#define ASCENDC_CPU_BINARY_BY(how, Name, function, ...)                                                              \
  template <class T>                                                                                                 \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
            cpu::Where where = cpu::Where::current()) {                                                              \
    how(#Name, where, function, dst, src0, src1, count);                                                             \
  }                                                                                                                  \
  template <class T, bool isSetMask = true>                                                                          \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                       \
            const cpu::MaskArgument& mask, cpu::RepeatArgument repeats, const BinaryRepeatParams& params,            \
            cpu::Where where = cpu::Where::current()) {                                                              \
    how(#Name, where, function, dst, src0, src1, cpu::chosen<isSetMask>(mask), repeats, params);                     \
  }

#define ASCENDC_CPU_BINARY(Name, function, ...) ASCENDC_CPU_BINARY_BY(cpu::binary, Name, function, __VA_ARGS__)
ASCENDC_CPU_BINARY(Add, cpu::sum, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Sub, cpu::difference, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Mul, cpu::product, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Div, cpu::quotient, half, float)
ASCENDC_CPU_BINARY(Max, cpu::larger, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Min, cpu::smaller, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(And, cpu::bits_of_both, int16_t, uint16_t)
ASCENDC_CPU_BINARY(Or, cpu::bits_of_either, int16_t, uint16_t)
ASCENDC_CPU_BINARY(AddRelu, cpu::positive_sum, half, float, int16_t)
ASCENDC_CPU_BINARY(SubRelu, cpu::positive_difference, half, float, int16_t)
#undef ASCENDC_CPU_BINARY

#define ASCENDC_CPU_ACCUMULATE(Name, function, ...) ASCENDC_CPU_BINARY_BY(cpu::accumulate, Name, function, __VA_ARGS__)
ASCENDC_CPU_ACCUMULATE(MulAddDst, cpu::plus_product, half, float)
ASCENDC_CPU_ACCUMULATE(FusedMulAdd, cpu::product_plus, half, float)
ASCENDC_CPU_ACCUMULATE(FusedMulAddRelu, cpu::positive_product_plus, half, float)
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
#define ASCENDC_CPU_UNARY(Name, function, ...)                                                                        \
  template <class T>                                                                                                  \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,                               \
            cpu::Where where = cpu::Where::current()) {                                                               \
    cpu::unary(#Name, where, function, dst, src, count);                                                              \
  }                                                                                                                   \
  template <class T, bool isSetMask = true>                                                                           \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const cpu::MaskArgument& mask,                      \
            cpu::RepeatArgument repeats, const UnaryRepeatParams& params, cpu::Where where = cpu::Where::current()) { \
    cpu::unary(#Name, where, function, dst, src, cpu::chosen<isSetMask>(mask), repeats, params);                      \
  }

ASCENDC_CPU_UNARY(Abs, cpu::absolute, half, float)
ASCENDC_CPU_UNARY(Exp, cpu::exponential, half, float)
ASCENDC_CPU_UNARY(Ln, cpu::logarithm, half, float)
ASCENDC_CPU_UNARY(Sqrt, cpu::square_root, half, float)
ASCENDC_CPU_UNARY(Rsqrt, cpu::inverse_square_root, half, float)
ASCENDC_CPU_UNARY(Reciprocal, cpu::inverse, half, float)
ASCENDC_CPU_UNARY(Relu, cpu::positive_part, half, float, int32_t)
ASCENDC_CPU_UNARY(Not, cpu::other_bits, int16_t, uint16_t)
#undef ASCENDC_CPU_UNARY

// Name(dst, src, scalar, count) and Name(dst, src, scalar, mask, repeats, UnaryRepeatParams)
#define ASCENDC_CPU_SCALAR(Name, function, ...)                                                                       \
  template <class T>                                                                                                  \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,              \
            cpu::Where where = cpu::Where::current()) {                                                               \
    const cpu::Computed<T> value = scalar;                                                                            \
    cpu::unary(#Name, where, [value](cpu::Computed<T> x) { return function(x, value); }, dst, src, count);            \
  }                                                                                                                   \
  template <class T, bool isSetMask = true>                                                                           \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const cpu::MaskArgument& mask,     \
            cpu::RepeatArgument repeats, const UnaryRepeatParams& params, cpu::Where where = cpu::Where::current()) { \
    const cpu::Computed<T> value = scalar;                                                                            \
    cpu::unary(                                                                                                       \
        #Name, where, [value](cpu::Computed<T> x) { return function(x, value); }, dst, src,                           \
        cpu::chosen<isSetMask>(mask), repeats, params);                                                               \
  }

ASCENDC_CPU_SCALAR(Adds, cpu::sum, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Muls, cpu::product, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Maxs, cpu::larger, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Mins, cpu::smaller, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(ShiftLeft, cpu::shifted_left, int16_t, uint16_t, int32_t, uint32_t)
ASCENDC_CPU_SCALAR(ShiftRight, cpu::shifted_right, int16_t, uint16_t, int32_t, uint32_t)
ASCENDC_CPU_SCALAR(LeakyRelu, cpu::leaky, half, float)
#undef ASCENDC_CPU_SCALAR

// dst[i] += scalar * src[i]; dst has src's dtype, or is float beside half.
template <class Dst, class Src>
  requires(cpu::OneOf<Src, half, float> && cpu::OneOf<Dst, Src, float>)
void Axpy(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const Src& scalar, const int32_t& count,
          cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<Dst, Src>;
  cpu::Elementwise<Dst, Dst, Src>::run(
      "Axpy", where, cpu::Lanes::of_count(n, count),
      [scalar = static_cast<float>(scalar)](float y, float x) { return y + scalar * x; },
      cpu::consecutive(cpu::Use::Write, dst, n), cpu::consecutive(cpu::Use::Read, dst, n),
      cpu::consecutive(cpu::Use::Read, src, n));
}

template <class Dst, class Src, bool isSetMask = true>
  requires(cpu::OneOf<Src, half, float> && cpu::OneOf<Dst, Src, float>)
void Axpy(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const Src& scalar, const cpu::MaskArgument& mask,
          cpu::RepeatArgument repeats, const UnaryRepeatParams& p, cpu::Where where = cpu::Where::current()) {
  const auto lanes = cpu::Lanes::of_mask("Axpy", where, cpu::kLanes<Dst, Src>, cpu::chosen<isSetMask>(mask), repeats);
  cpu::Elementwise<Dst, Dst, Src>::run(
      "Axpy", where, lanes, [scalar = static_cast<float>(scalar)](float y, float x) { return y + scalar * x; },
      cpu::strided(cpu::Use::Write, dst, p.dstBlkStride, p.dstRepStride),
      cpu::strided(cpu::Use::Read, dst, p.dstBlkStride, p.dstRepStride),
      cpu::strided(cpu::Use::Read, src, p.srcBlkStride, p.srcRepStride));
}

// dst[i] = scalar
template <class T>
  requires cpu::OneOf<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const int32_t& count,
               cpu::Where where = cpu::Where::current()) {
  constexpr uint32_t n = cpu::kLanes<T>;
  cpu::Elementwise<T>::run(
      "Duplicate", where, cpu::Lanes::of_count(n, count), [scalar] { return scalar; },
      cpu::consecutive(cpu::Use::Write, dst, n));
}

template <class T, bool isSetMask = true>
  requires cpu::OneOf<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const cpu::MaskArgument& mask, cpu::RepeatArgument repeats,
               uint16_t block_stride, uint8_t repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::Elementwise<T>::run(
      "Duplicate", where,
      cpu::Lanes::of_mask("Duplicate", where, cpu::kLanes<T>, cpu::chosen<isSetMask>(mask), repeats),
      [scalar] { return scalar; }, cpu::strided(cpu::Use::Write, dst, block_stride, repeat_stride));
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
