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

template <class T, class Function>
void binary(const char* name, Where where, const Function& function, const LocalTensor<T>& dst,
            const LocalTensor<T>& src0, const LocalTensor<T>& src1, int32_t count) {
  constexpr uint32_t n = kLanes<T>;
  Elementwise<T, T, T>::run(name, where, Lanes::of_count(n, count), function, consecutive(Use::Write, dst, n),
                            consecutive(Use::Read, src0, n), consecutive(Use::Read, src1, n));
}

template <class T, class Function>
void binary(const char* name, Where where, const Function& function, const LocalTensor<T>& dst,
            const LocalTensor<T>& src0, const LocalTensor<T>& src1, const MaskArgument& mask, uint8_t repeats,
            const BinaryRepeatParams& p) {
  Elementwise<T, T, T>::run(name, where, Lanes::of_mask(name, where, kLanes<T>, mask, repeats), function,
                            strided(Use::Write, dst, p.dstBlkStride, p.dstRepStride),
                            strided(Use::Read, src0, p.src0BlkStride, p.src0RepStride),
                            strided(Use::Read, src1, p.src1BlkStride, p.src1RepStride));
}

template <class T, class Function>
void unary(const char* name, Where where, const Function& function, const LocalTensor<T>& dst,
           const LocalTensor<T>& src, int32_t count) {
  constexpr uint32_t n = kLanes<T>;
  Elementwise<T, T>::run(name, where, Lanes::of_count(n, count), function, consecutive(Use::Write, dst, n),
                         consecutive(Use::Read, src, n));
}

template <class T, class Function>
void unary(const char* name, Where where, const Function& function, const LocalTensor<T>& dst,
           const LocalTensor<T>& src, const MaskArgument& mask, uint8_t repeats, const UnaryRepeatParams& p) {
  Elementwise<T, T>::run(name, where, Lanes::of_mask(name, where, kLanes<T>, mask, repeats), function,
                         strided(Use::Write, dst, p.dstBlkStride, p.dstRepStride),
                         strided(Use::Read, src, p.srcBlkStride, p.srcRepStride));
}

}  // namespace cpu

// ASCENDC_CPU_BINARY(Name, function of two elements, dtypes...)
#define ASCENDC_CPU_BINARY(Name, function, ...)                                                                      \
  template <class T>                                                                                                 \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, \
            cpu::Where where = cpu::Where::current()) {                                                              \
    cpu::binary(#Name, where, function, dst, src0, src1, count);                                                     \
  }                                                                                                                  \
  template <class T>                                                                                                 \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                       \
            const MaskArgument& mask, uint8_t repeats, const BinaryRepeatParams& params,                             \
            cpu::Where where = cpu::Where::current()) {                                                              \
    cpu::binary(#Name, where, function, dst, src0, src1, mask, repeats, params);                                     \
  }

ASCENDC_CPU_BINARY(Add, cpu::sum, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Sub, cpu::difference, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Mul, cpu::product, half, float, int16_t, int32_t)
ASCENDC_CPU_BINARY(Div, cpu::quotient, half, float)

// ASCENDC_CPU_SCALAR(Name, function of an element and the scalar, dtypes...)
#define ASCENDC_CPU_SCALAR(Name, function, ...)                                                                     \
  template <class T>                                                                                                \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const int32_t& count,            \
            cpu::Where where = cpu::Where::current()) {                                                             \
    const cpu::Computed<T> value = scalar;                                                                          \
    cpu::unary(#Name, where, [value](cpu::Computed<T> x) { return function(x, value); }, dst, src, count);          \
  }                                                                                                                 \
  template <class T>                                                                                                \
    requires cpu::OneOf<T, __VA_ARGS__>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, const MaskArgument& mask,        \
            uint8_t repeats, const UnaryRepeatParams& params, cpu::Where where = cpu::Where::current()) {           \
    const cpu::Computed<T> value = scalar;                                                                          \
    cpu::unary(                                                                                                     \
        #Name, where, [value](cpu::Computed<T> x) { return function(x, value); }, dst, src, mask, repeats, params); \
  }

ASCENDC_CPU_SCALAR(Adds, cpu::sum, half, float, int16_t, int32_t)
ASCENDC_CPU_SCALAR(Muls, cpu::product, half, float, int16_t, int32_t)

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

template <class T>
  requires cpu::OneOf<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>
void Duplicate(const LocalTensor<T>& dst, const T& scalar, const MaskArgument& mask, uint8_t repeats,
               uint16_t block_stride, uint8_t repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::Elementwise<T>::run(
      "Duplicate", where, cpu::Lanes::of_mask("Duplicate", where, cpu::kLanes<T>, mask, repeats),
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

template <class T>
  requires cpu::OneOf<T, half, float, int16_t, int32_t>
void CreateVecIndex(const LocalTensor<T>& dst, const T& first, const MaskArgument& mask, uint8_t repeats,
                    uint16_t block_stride, uint8_t repeat_stride, cpu::Where where = cpu::Where::current()) {
  cpu::Elementwise<T>::run(
      "CreateVecIndex", where, cpu::Lanes::of_mask("CreateVecIndex", where, cpu::kLanes<T>, mask, repeats),
      [next = cpu::Computed<T>(first)]() mutable { return next++; },
      cpu::strided(cpu::Use::Write, dst, block_stride, repeat_stride));
}

}  // namespace AscendC
