// SPDX-License-Identifier: Apache-2.0
// Mathematical functions of the first `count` elements, with or without a buffer for what they need in between.
#pragma once

#include "ascendc/library.h"
#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

// In double, so that the result is that of the mathematical function, rounded.
inline constexpr auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
// x / (1 + exp(-1.702 x)) is FasterGelu; this one has a parabola in place of the exponential.
inline constexpr auto faster_gelu_v2 = [](double x) {
  const double outside = std::min(std::fabs(0.7071 * x), 1.769) - 1.769;
  return x * (std::copysign(0.5 - 0.1444 * outside * outside, x) + 0.5);
};
// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
inline constexpr auto gelu = [](double x) {
  constexpr double kFactor = 1.5957691216057308;  // sqrt(8 / pi)
  return x * logistic(kFactor * (x + 0.044715 * x * x * x));
};
inline double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}
inline constexpr auto sign = [](float x) { return static_cast<float>((x > 0) - (x < 0)); };
inline constexpr auto fraction = [](float x) { return x - std::trunc(x); };

}  // namespace cpu

// The switches after the type are CANN's: whether the source may be used as a work buffer, and the precision, which is
// always the function's own. Without a count, the function applies to all elements of the source.
#define ASCENDC_CPU_MATH(Name, function)                                                                            \
  template <class T, auto... switches>                                                                              \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count,                                   \
            cpu::Where where = cpu::Where::current()) {                                                             \
    cpu::unary(                                                                                                     \
        #Name, where, [](float x) { return static_cast<float>(function); }, dst, src, static_cast<int32_t>(count)); \
  }                                                                                                                 \
  template <class T, auto... switches>                                                                              \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,            \
            uint32_t count, cpu::Where where = cpu::Where::current()) {                                             \
    cpu::check_temporary(#Name, where, temporary.memory());                                                         \
    Name(dst, src, count, where);                                                                                   \
  }                                                                                                                 \
  template <class T, auto... switches>                                                                              \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, cpu::Where where = cpu::Where::current()) {       \
    Name(dst, src, src.GetSize(), where);                                                                           \
  }                                                                                                                 \
  template <class T, auto... switches>                                                                              \
    requires cpu::OneOf<T, half, float>                                                                             \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,            \
            cpu::Where where = cpu::Where::current()) {                                                             \
    Name(dst, src, temporary, src.GetSize(), where);                                                                \
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
ASCENDC_CPU_MATH(Gelu, cpu::gelu(x))
ASCENDC_CPU_MATH(FasterGelu, x* cpu::logistic(1.702 * x))
ASCENDC_CPU_MATH(FasterGeluV2, cpu::faster_gelu_v2(x))
ASCENDC_CPU_MATH(Lgamma, cpu::log_gamma(x))
ASCENDC_CPU_MATH(Rint, std::nearbyint(x))
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

#define ASCENDC_CPU_MATH_OF_TWO(Name, function)                                                                \
  template <class T, auto... switches>                                                                         \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint32_t count, \
            cpu::Where where = cpu::Where::current()) {                                                        \
    cpu::binary(                                                                                               \
        #Name, where, [](float x, float y) { return static_cast<float>(function); }, dst, src0, src1,          \
        static_cast<int32_t>(count));                                                                          \
  }                                                                                                            \
  template <class T, auto... switches>                                                                         \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
            const LocalTensor<uint8_t>& temporary, uint32_t count, cpu::Where where = cpu::Where::current()) { \
    cpu::check_temporary(#Name, where, temporary.memory());                                                    \
    Name(dst, src0, src1, count, where);                                                                       \
  }                                                                                                            \
  template <class T, auto... switches>                                                                         \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
            cpu::Where where = cpu::Where::current()) {                                                        \
    Name(dst, src0, src1, src0.GetSize(), where);                                                              \
  }                                                                                                            \
  template <class T, auto... switches>                                                                         \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
            const LocalTensor<uint8_t>& temporary, cpu::Where where = cpu::Where::current()) {                 \
    Name(dst, src0, src1, temporary, src0.GetSize(), where);                                                   \
  }

// x and y: an element of src0 and one of src1.
ASCENDC_CPU_MATH_OF_TWO(GeGLU, x* cpu::gelu(y))
ASCENDC_CPU_MATH_OF_TWO(ReGlu, x*(y > 0 ? y : 0.0f))
ASCENDC_CPU_MATH_OF_TWO(Fmod, std::fmod(double{x}, double{y}))
ASCENDC_CPU_MATH_OF_TWO(Hypot, std::hypot(double{x}, double{y}))
#undef ASCENDC_CPU_MATH_OF_TWO

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

struct CumSumInfo {
  uint32_t outter = 0;
  uint32_t inner = 0;
};
enum class CumSumAlgorithm { CUMSUM_ALGORITHM_LINEBYLINE, CUMSUM_ALGORITHM_SKLANSKY };
struct CumSumConfig {
  bool isLastAxis = true;
  bool isReuseSource = false;
  bool outputLastRow = false;
  CumSumAlgorithm algorithm = CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE;
};
inline constexpr CumSumConfig defaultCumSumConfig = {true, false, true};

// dst[i] = the sum of the elements of a row up to i, or without isLastAxis of the rows up to i; in float, rounded once.
template <class T, const CumSumConfig& config = defaultCumSumConfig>
  requires cpu::OneOf<T, half, float>
void CumSum(const LocalTensor<T>& dst, const LocalTensor<T>& last_row, const LocalTensor<T>& src,
            const CumSumInfo& info, cpu::Where where = cpu::Where::current()) {
  if (info.inner * sizeof(T) % cpu::kBlockBytes != 0) {
    cpu::fail(where, "CumSum: rows of %u elements; inner is rounded up to whole blocks of 32 bytes", info.inner);
  }
  cpu::check_in_place("CumSum", where, dst, int64_t{info.outter} * info.inner, src, int64_t{info.outter} * info.inner);
  std::vector<float> sums;
  for (int64_t i = 0; i < info.outter; ++i) {
    std::vector<float> row = cpu::read_row("CumSum", where, src, i * info.inner, info.inner);
    if constexpr (config.isLastAxis) {
      for (size_t k = 1; k < row.size(); ++k) row[k] += row[k - 1];
    } else {
      for (size_t k = 0; k < sums.size(); ++k) row[k] += sums[k];
    }
    cpu::write_row("CumSum", where, dst, i * info.inner, row);
    sums = std::move(row);
  }
  if (config.outputLastRow && !sums.empty()) cpu::write_row("CumSum", where, last_row, 0, sums);
}
template <class T, const CumSumConfig& config = defaultCumSumConfig>
  requires cpu::OneOf<T, half, float>
void CumSum(const LocalTensor<T>& dst, const LocalTensor<T>& last_row, const LocalTensor<T>& src,
            const LocalTensor<uint8_t>& work, const CumSumInfo& info, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("CumSum", where, work);
  CumSum<T, config>(dst, last_row, src, info, where);
}

// The device sums taylorExpandLevel terms of a series; this is the series' limit, rounded.
template <class T, uint8_t taylorExpandLevel, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count,
         cpu::Where where = cpu::Where::current()) {
  Exp<T>(dst, src, static_cast<int32_t>(count), where);
}
template <class T, uint8_t taylorExpandLevel, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,
         const uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_temporary("Exp", where, temporary.memory());
  Exp<T>(dst, src, static_cast<int32_t>(count), where);
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
