// SPDX-License-Identifier: Apache-2.0
// Mathematical functions of the first `count` elements, with or without a buffer for what they need in between.
#pragma once

#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

// In double, so that the result is that of the mathematical function, rounded.
inline constexpr auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
inline constexpr auto sign = [](float x) { return static_cast<float>((x > 0) - (x < 0)); };
inline constexpr auto fraction = [](float x) { return x - std::trunc(x); };

}  // namespace cpu

#define ASCENDC_CPU_MATH(Name, function)                                                                            \
  template <class T>                                                                                                \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count,                                   \
            cpu::Where where = cpu::Where::current()) {                                                             \
    cpu::unary(                                                                                                     \
        #Name, where, [](float x) { return static_cast<float>(function); }, dst, src, static_cast<int32_t>(count)); \
  }                                                                                                                 \
  template <class T>                                                                                                \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,            \
            uint32_t count, cpu::Where where = cpu::Where::current()) {                                             \
    cpu::check_temporary(#Name, where, temporary.memory());                                                         \
    Name(dst, src, count, where);                                                                                   \
  }

ASCENDC_CPU_MATH(Sin, std::sin(double{x}))
ASCENDC_CPU_MATH(Cos, std::cos(double{x}))
ASCENDC_CPU_MATH(Tan, std::tan(double{x}))
ASCENDC_CPU_MATH(Asin, std::asin(double{x}))
ASCENDC_CPU_MATH(Acos, std::acos(double{x}))
ASCENDC_CPU_MATH(Atan, std::atan(double{x}))
ASCENDC_CPU_MATH(Sinh, std::sinh(double{x}))
ASCENDC_CPU_MATH(Cosh, std::cosh(double{x}))
ASCENDC_CPU_MATH(Tanh, std::tanh(double{x}))
ASCENDC_CPU_MATH(Asinh, std::asinh(double{x}))
ASCENDC_CPU_MATH(Acosh, std::acosh(double{x}))
ASCENDC_CPU_MATH(Atanh, std::atanh(double{x}))
ASCENDC_CPU_MATH(Erf, std::erf(double{x}))
ASCENDC_CPU_MATH(Erfc, std::erfc(double{x}))
ASCENDC_CPU_MATH(Log, std::log(double{x}))
ASCENDC_CPU_MATH(Log2, std::log2(double{x}))
ASCENDC_CPU_MATH(Log10, std::log10(double{x}))
ASCENDC_CPU_MATH(Sigmoid, cpu::logistic(x))
ASCENDC_CPU_MATH(Silu, x* cpu::logistic(x))
ASCENDC_CPU_MATH(Gelu, 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))))
ASCENDC_CPU_MATH(Sign, cpu::sign(x))
ASCENDC_CPU_MATH(Frac, cpu::fraction(x))
ASCENDC_CPU_MATH(Floor, std::floor(x))
ASCENDC_CPU_MATH(Ceil, std::ceil(x))
ASCENDC_CPU_MATH(Trunc, std::trunc(x))
ASCENDC_CPU_MATH(Round, std::nearbyint(x))
#undef ASCENDC_CPU_MATH

// dst[i] = base[i] ^ exponent[i]
template <class T>
  requires cpu::OneOf<T, half, float>
void Power(const LocalTensor<T>& dst, const LocalTensor<T>& base, const LocalTensor<T>& exponent, uint32_t count,
           cpu::Where where = cpu::Where::current()) {
  cpu::binary(
      "Power", where, [](float x, float y) { return static_cast<float>(std::pow(double{x}, double{y})); }, dst, base,
      exponent, static_cast<int32_t>(count));
}

// dst[i] = src[i], but at most, or at least, the scalar
template <class T>
  requires cpu::OneOf<T, half, float>
void ClampMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, uint32_t count,
              cpu::Where where = cpu::Where::current()) {
  Mins(dst, src, scalar, static_cast<int32_t>(count), where);
}

template <class T>
  requires cpu::OneOf<T, half, float>
void ClampMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalar, uint32_t count,
              cpu::Where where = cpu::Where::current()) {
  Maxs(dst, src, scalar, static_cast<int32_t>(count), where);
}

// dst[i] = src[i], but at least `least` and at most `most`
template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void Clamp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& least, const T& most, const uint32_t count,
           cpu::Where where = cpu::Where::current()) {
  const float from = least, to = most;
  cpu::unary(
      "Clamp", where, [from, to](float x) { return x < from ? from
                                                   : x > to ? to
                                                            : x; }, dst, src,
      static_cast<int32_t>(count));
}

// dst[i] = src[i] / (1 + exp(-scalar * src[i]))
template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void Swish(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, const T scalar,
           cpu::Where where = cpu::Where::current()) {
  const float beta = scalar;
  cpu::unary(
      "Swish", where, [beta](float x) { return static_cast<float>(x * cpu::logistic(double{beta} * x)); }, dst, src,
      static_cast<int32_t>(count));
}

// dst[i] = src0[i] * Swish(src1[i])
template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void SwiGLU(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const float& scalar,
            const uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::binary(
      "SwiGLU", where,
      [scalar](float x, float y) { return static_cast<float>(x * (y * cpu::logistic(double{scalar} * y))); }, dst, src0,
      src1, static_cast<int32_t>(count));
}

// dst[i] = src0[i] ^ src1[i], bit by bit
template <class T>
  requires cpu::OneOf<T, int16_t, uint16_t>
void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint32_t count,
         cpu::Where where = cpu::Where::current()) {
  cpu::binary(
      "Xor", where, [](T a, T b) { return static_cast<T>(a ^ b); }, dst, src0, src1, static_cast<int32_t>(count));
}

}  // namespace AscendC
