// SPDX-License-Identifier: Apache-2.0
// Compiled for each level: ASCENDC_CPU_LEVEL is its name. Every level gives the same bits: operations are those of
// IEEE 754, one by one, in the same order, and no function of a header is called, which the linker could take from the
// unit of a higher level.
#include "vector_loops.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace AscendC::cpu::ASCENDC_CPU_LEVEL {
namespace {

#define INLINE [[gnu::always_inline]] inline

constexpr uint32_t kChunk = 128;  // numbers of 16 bits that are computed with at a time

// The type of an element in memory, and the type in which a loop computes: float for half and bfloat16_t.
template <class T>
struct Element {
  typedef T Stored __attribute__((may_alias, aligned(1)));
  typedef T Number __attribute__((may_alias, aligned(1)));
};
struct NarrowElement {
  typedef uint16_t Stored __attribute__((may_alias, aligned(1)));
  typedef float Number __attribute__((may_alias, aligned(1)));
};
template <>
struct Element<half> : NarrowElement {};
template <>
struct Element<bfloat16_t> : NarrowElement {};

INLINE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

#if defined(__aarch64__)
INLINE float widened_half(uint16_t bits) { return __builtin_bit_cast(__fp16, bits); }
INLINE uint16_t narrowed_half(float value) { return __builtin_bit_cast(uint16_t, static_cast<__fp16>(value)); }
#else
INLINE float widened_half(uint16_t bits) {
  const uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  return float_of((magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000 : finite) | sign);
}

INLINE uint16_t narrowed_half(float value) {
  const uint32_t sign = bits_of(value) & 0x80000000, magnitude = bits_of(value) ^ sign;
  const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  return static_cast<uint16_t>((magnitude >= 0x47800000 ? special : finite) | sign >> 16);
}

#endif

INLINE uint16_t narrowed_bfloat16(float value) {
  const uint32_t bits = bits_of(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);
}

using NarrowStored = NarrowElement::Stored;

template <class T>
INLINE void widen(const std::byte* from, float* to, uint32_t count) {
  const auto* numbers = reinterpret_cast<const typename Element<T>::Stored*>(from);
  uint32_t i = 0;
  if constexpr (std::is_same_v<T, half>) {
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16) {
      _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i))));
    }
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
    }
#endif
    for (; i < count; ++i) to[i] = widened_half(numbers[i]);
  } else {
    for (; i < count; ++i) to[i] = float_of(static_cast<uint32_t>(numbers[i]) << 16);
  }
}

template <class T>
INLINE void narrow(const float* from, std::byte* to, uint32_t count) {
  auto* numbers = reinterpret_cast<typename Element<T>::Stored*>(to);
  uint32_t i = 0;
  if constexpr (std::is_same_v<T, half>) {
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i),
                          _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < count; ++i) numbers[i] = narrowed_half(from[i]);
  } else {
    for (; i < count; ++i) numbers[i] = narrowed_bfloat16(from[i]);
  }
}

// ---- what is done to an element

template <class T>
INLINE T sum(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return a + b;
  else
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));  // integers wrap around
}
template <class T>
INLINE T difference(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return a - b;
  else
    return static_cast<T>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}
template <class T>
INLINE T product(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return a * b;
  else
    return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}
template <class T>
INLINE T positive_part(T a) {
  return a <= T{} ? T{} : a;  // NaN stays
}

// e^x = 2^k e^r: k is the integer nearest to x / ln 2, r = x - k ln 2 in two parts, e^r = 1 + r + r^2 p(r). Measured
// over all floats: within 0.77 units in the last place, and the nearest float for 99.9 of 100 arguments. A result that
// is subnormal is rounded twice; of a sample from 0.1 to 88 in magnitude it was within 0.66 units, the nearest
// for 98.5.
INLINE float exponential(float x) {
  constexpr float kShift = 0x1.8p23f, kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  const float above = x < -104.0f ? -104.0f : x, within = above > 89.0f ? 89.0f : above;
  const float shifted = within * 0x1.715476p0f + kShift, k = shifted - kShift;
  const float high = within - k * kLn2High, low = k * kLn2Low, r = high - low;
  const float p =
      0.5f +
      r * (0x1.555554p-3f + r * (0x1.5554e6p-5f + r * (0x1.111302p-7f + r * (0x1.6d4f4ep-10f + r * 0x1.9e188cp-13f))));
  const float one = 1.0f + r, lost = (r - (one - 1.0f)) + ((high - r) - low);
  const float power = one + (lost + r * r * p);
  // In two steps, since 2^k itself may be no float.
  const int32_t exponent = static_cast<int32_t>(bits_of(shifted) - bits_of(kShift)), half_of_it = exponent >> 1;
  const float scaled = power * float_of(static_cast<uint32_t>(half_of_it + 127) << 23);
  return scaled * float_of(static_cast<uint32_t>(exponent - half_of_it + 127) << 23);
}

// In double, so that the result is the nearest float (for all but 56 arguments, measured over all): x = 2^k m, m from
// sqrt(1/2) to sqrt(2), and ln m = 2 artanh(s), s = (m - 1) / (m + 1).
INLINE float logarithm(float x) {
  const bool tiny = x < 0x1p-126f;
  const uint32_t bits = bits_of(tiny ? x * 0x1p23f : x);
  const int32_t k = static_cast<int32_t>(bits - 0x3f3504f3) >> 23;
  const double m = float_of(bits - (static_cast<uint32_t>(k) << 23));
  const double s = (m - 1) / (m + 1), q = s * s;
  const double series =
      1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13))))));
  const auto result = static_cast<float>((tiny ? k - 23 : k) * 0x1.62e42fefa39efp-1 + 2 * s * series);
  const float infinity = __builtin_inff();
  const float of_special = x == 0 ? -infinity : x < 0 ? __builtin_nanf("") : x;  // NaN and infinity stay
  return x > 0 && x < infinity ? result : of_special;
}

// ---- conversions

// A float rounded to an integer; modes are RoundMode's: what is no other one is to nearest even.
template <RoundMode mode>
INLINE float rounded(float value) {
  constexpr float kShift = 0x1p23f;  // what is larger is an integer
  const float sign = float_of(bits_of(value) & 0x80000000), magnitude = float_of(bits_of(value) & 0x7fffffff);
  const float nearest = magnitude + kShift - kShift;
  float result = nearest;
  if constexpr (mode == RoundMode::CAST_TRUNC || mode == RoundMode::CAST_ROUND) {
    const float down = nearest > magnitude ? nearest - 1 : nearest;
    result = mode == RoundMode::CAST_ROUND && magnitude - down >= 0.5f ? down + 1 : down;
  } else if constexpr (mode == RoundMode::CAST_FLOOR || mode == RoundMode::CAST_CEIL) {
    const bool up = mode == RoundMode::CAST_CEIL ? bits_of(sign) == 0 : bits_of(sign) != 0;  // of the magnitude
    const float down = nearest > magnitude ? nearest - 1 : nearest;
    const float above = nearest < magnitude ? nearest + 1 : nearest;
    result = up ? above : down;
  }
  const float chosen = magnitude < kShift ? result : magnitude;  // NaN stays
  return float_of(bits_of(chosen) | bits_of(sign));
}

// An integer of a float that is one; past the limits the limit, of NaN 0.
template <class T>
INLINE T saturated(float value) {
  constexpr bool kIsSigned = static_cast<T>(-1) < 0;
  constexpr float kAbove = kIsSigned ? static_cast<float>(uint64_t{1} << (8 * sizeof(T) - 1)) : 256.0f;
  constexpr float kBelow = kIsSigned ? -kAbove : 0;
  static_assert(kIsSigned || sizeof(T) == 1);
  constexpr T kLargest = static_cast<T>(kIsSigned ? (uint64_t{1} << (8 * sizeof(T) - 1)) - 1 : 255);
  const bool inside = value >= kBelow && value < kAbove;
  const int32_t integer = static_cast<int32_t>(inside ? value : 0.0f);
  const int32_t above = value >= kAbove ? kLargest : integer;
  return static_cast<T>(value < kBelow ? static_cast<int32_t>(kBelow) : above);
}

// From what is computed to what is stored; rounded to nearest even.
template <class Dst, class Number>
INLINE auto converted(Number value) {
  if constexpr (Narrow<Dst> || std::is_same_v<Dst, Number>) {
    return value;
  } else if constexpr (std::is_same_v<Number, float>) {
    return saturated<Dst>(rounded<RoundMode::CAST_RINT>(value));
  } else {
    const Number low = static_cast<Number>(-128), high = 127;
    static_assert(std::is_same_v<Dst, int8_t>);
    return static_cast<Dst>(value < low ? low : value > high ? high : value);
  }
}

// ---- loops

// dst[i] = function(src[i]...) over rows.
template <class Dst, class... Src>
struct Elementwise {
  template <class Function>
  INLINE static void run(const OperandRows& rows, const Function& function) {
    run(rows, function, std::index_sequence_for<Src...>{});
  }

  template <class Function, size_t... i>
  INLINE static void run(const OperandRows& r, const Function& function, std::index_sequence<i...>) {
    for (uint32_t row = 0; row < r.rows; ++row) {
      std::byte* dst = r.dst + row * r.dst_step;
      const std::byte* const src[] = {r.src[i] + row * r.src_step[i]..., nullptr};
      if constexpr ((Narrow<Dst> || ... || Narrow<Src>)) {
        uint32_t at = 0;
        for (; at + kChunk <= r.count; at += kChunk) chunk<Function, i...>(function, dst, src, at, kChunk);
        if (at < r.count) chunk<Function, i...>(function, dst, src, at, r.count - at);
      } else {
        loop(function, reinterpret_cast<typename Element<Dst>::Number*>(dst), r.count,
             reinterpret_cast<const typename Element<Src>::Number*>(src[i])...);
      }
    }
  }

  template <class Function, size_t... i>
  INLINE static void chunk(const Function& function, std::byte* dst, const std::byte* const* src, uint32_t at,
                           uint32_t count) {
    float buffers[sizeof...(Src) + 1][kChunk];
    dst += at * sizeof(Dst);
    if constexpr (Narrow<Dst>) {
      float* results = buffers[sizeof...(Src)];
      loop(function, results, count, numbers<Src>(src[i] + at * sizeof(Src), buffers[i], count)...);
      narrow<Dst>(results, dst, count);
    } else {
      loop(function, reinterpret_cast<typename Element<Dst>::Number*>(dst), count,
           numbers<Src>(src[i] + at * sizeof(Src), buffers[i], count)...);
    }
  }

  template <class T>
  INLINE static const typename Element<T>::Number* numbers(const std::byte* src, float* buffer, uint32_t count) {
    if constexpr (Narrow<T>) {
      widen<T>(src, buffer, count);
      return reinterpret_cast<const typename Element<T>::Number*>(buffer);
    } else {
      return reinterpret_cast<const typename Element<T>::Number*>(src);
    }
  }

  template <class Function>
  INLINE static void loop(const Function& function, typename Element<Dst>::Number* to, uint32_t count,
                          const typename Element<Src>::Number*... from) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < count; ++i) to[i] = function(from[i]...);
  }
};

// ---- the instructions

template <class T>
INLINE Computed<T> of_scalar(uint32_t bits) {
  if constexpr (std::is_same_v<Computed<T>, float>)
    return float_of(bits);
  else
    return static_cast<T>(bits);
}

template <class T>
constexpr void set(Loops& all, Operation operation, Loop loop) {
  all.elements[static_cast<size_t>(operation)][static_cast<size_t>(dtype_of<T>())] = loop;
}

// The loops of one instruction for the dtypes of its sources. Its function is a template<T>, of the numbers that are
// computed with; s is its scalar.
template <class... Types, class Of>
constexpr void for_each(const Of& of) {
  (of.template operator()<Types>(), ...);
}
#define DEFINE(Name, sources, arguments, result, ...)                                            \
  for_each<__VA_ARGS__>([&]<class T>() {                                                         \
    set<T>(all, Operation::Name, [](const OperandRows& rows, [[maybe_unused]] uint32_t scalar) { \
      using N = Computed<T>;                                                                     \
      [[maybe_unused]] const N s = of_scalar<T>(scalar);                                         \
      sources::run(rows, [=] arguments -> N { return result; });                                 \
    });                                                                                          \
  });
#define NULLARY(Name, result, ...) DEFINE(Name, Elementwise<T>, (), result, __VA_ARGS__)
#define UNARY(Name, result, ...) DEFINE(Name, UnaryOf<T>, (N a), result, __VA_ARGS__)
#define BINARY(Name, result, ...) DEFINE(Name, BinaryOf<T>, (N a, N b), result, __VA_ARGS__)
#define ACCUMULATE(Name, result, ...) DEFINE(Name, TernaryOf<T>, (N d, N a, N b), result, __VA_ARGS__)

template <class T>
using UnaryOf = Elementwise<T, T>;
template <class T>
using BinaryOf = Elementwise<T, T, T>;
template <class T>
using TernaryOf = Elementwise<T, T, T, T>;

template <class T>
INLINE T shifted_left(T a, T bits) {
  return static_cast<T>(static_cast<uint32_t>(bits) < 32 ? static_cast<uint32_t>(a) << (bits & 31) : 0);
}
template <class T>
INLINE T shifted_right(T a, T bits) {
  constexpr uint32_t kMost = 8 * sizeof(T) - 1;
  const bool all = static_cast<uint32_t>(bits) > kMost;
  if (static_cast<T>(-1) > 0 && all) return 0;
  return static_cast<T>(a >> (all ? kMost : static_cast<uint32_t>(bits)));
}

// Vectors of eight floats, whatever the CPU has.
typedef float Floats __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(64)));

INLINE Floats floats_at(const float* from) {
  Floats floats;
  __builtin_memcpy(&floats, from, sizeof(floats));
  return floats;
}

// The sum of lanes i, i + 8, i + 16, ... for each i of 8, and of these in pairs, in double.
template <class Of>
INLINE double sum_of(const float* row, uint32_t count, const Of& of) {
  Doubles sums = {};
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) sums += of(__builtin_convertvector(floats_at(row + i), Doubles));
  if (i < count) {
    Floats last = {};
    __builtin_memcpy(&last, row + i, (count - i) * sizeof(float));
    const Doubles rest = of(__builtin_convertvector(last, Doubles));
    for (uint32_t k = 0; i + k < count; ++k) sums[k] += rest[k];
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

INLINE double sum_of(const float* row, uint32_t count) {
  return sum_of(row, count, [](Doubles numbers) __attribute__((always_inline)) { return numbers; });
}

double sum_of_squares(const float* row, uint32_t count, float mean) {
  return sum_of(row, count, [mean](Doubles numbers) __attribute__((always_inline)) {
    // The distance is that of floats.
    const Floats distance = __builtin_convertvector(numbers, Floats) - mean;
    const Doubles wide = __builtin_convertvector(distance, Doubles);
    return wide * wide;
  });
}

template <bool largest>
INLINE float better(float one, float other) {
  return (largest ? other > one : other < one) ? other : one;
}

// Of equal numbers, which differ where they are zeros, it is the first only if there are at most 8.
template <bool largest>
INLINE float best_of(const float* row, uint32_t count) {
  float best = row[0];
  uint32_t i = 0;
  if (count > 8 && best == best) {
    Floats bests = Floats{} + best;
    for (; i + 8 <= count; i += 8) {
      const Floats next = floats_at(row + i);
      bests = (largest ? next > bests : next < bests) ? next : bests;
    }
    for (uint32_t k = 0; k < 8; ++k) best = better<largest>(best, bests[k]);
  }
  for (; i < count; ++i) best = better<largest>(best, row[i]);
  return best;
}

uint32_t place(const float* row, uint32_t count, float number) {
  uint32_t i = 0;
  if (number != number) return 0;
  typedef int32_t Flags __attribute__((vector_size(32)));
  typedef int64_t Words __attribute__((vector_size(32)));
  for (; i + 8 <= count; i += 8) {
    const Flags equal = floats_at(row + i) == number;
    const auto words = reinterpret_cast<Words>(equal);
    if ((words[0] | words[1] | words[2] | words[3]) != 0) break;
  }
  while (row[i] != number) ++i;
  return i;
}

// Eight bytes that are 0 or 1 as the bits of one.
INLINE uint8_t packed(const uint8_t* flags) {
  uint64_t eight;
  __builtin_memcpy(&eight, flags, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "the first byte is taken to be the lowest"
#endif
  return static_cast<uint8_t>(eight * 0x0102040810204080u >> 56);
}

template <CMPMODE mode, class Number>
INLINE bool holds(Number a, Number b) {
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

template <class T, CMPMODE mode, bool scalar_operand>
void compare(const OperandRows& r, uint32_t scalar) {
  using Sources = Elementwise<T, T>;
  using N = Computed<T>;
  const N s = of_scalar<T>(scalar);
  for (uint32_t row = 0; row < r.rows; ++row) {
    std::byte* dst = r.dst + row * r.dst_step;
    for (uint32_t at = 0; at < r.count; at += kChunk) {
      const uint32_t count = r.count - at < kChunk ? r.count - at : kChunk;
      float buffers[2][kChunk];
      uint8_t flags[kChunk];
      const auto* a = Sources::template numbers<T>(r.src[0] + row * r.src_step[0] + at * sizeof(T), buffers[0], count);
      if constexpr (scalar_operand) {
        for (uint32_t i = 0; i < count; ++i) flags[i] = holds<mode, N>(a[i], s);
      } else {
        const auto* b =
            Sources::template numbers<T>(r.src[1] + row * r.src_step[1] + at * sizeof(T), buffers[1], count);
        for (uint32_t i = 0; i < count; ++i) flags[i] = holds<mode, N>(a[i], b[i]);
      }
      for (uint32_t i = count; i % 8 != 0; ++i) flags[i] = 0;
      for (uint32_t i = 0; i < count; i += 8) dst[(at + i) / 8] = std::byte{packed(flags + i)};
    }
  }
}

template <class Bits>
struct Lane;
template <>
struct Lane<uint16_t> {
  typedef uint16_t Vector __attribute__((vector_size(32)));
  static constexpr Vector kBits = {1,      2,      4,       8,       1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                   1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
};
template <>
struct Lane<uint32_t> {
  typedef uint32_t Vector __attribute__((vector_size(32)));
  static constexpr Vector kBits = {1, 2, 4, 8, 16, 32, 64, 128};
};

template <class Bits, bool scalar_operand>
void select(const OperandRows& r, uint32_t scalar) {
  using Vector = typename Lane<Bits>::Vector;
  constexpr uint32_t kWidth = sizeof(Vector) / sizeof(Bits);
  const Vector all = Vector{} + static_cast<Bits>(scalar);
  for (uint32_t row = 0; row < r.rows; ++row) {
    std::byte* to = r.dst + row * r.dst_step;
    const std::byte* bits = r.src[0] + row * r.src_step[0];
    const std::byte* a = r.src[1] + row * r.src_step[1];
    const std::byte* b = scalar_operand ? nullptr : r.src[2] + row * r.src_step[2];
    const auto lanes = [&](uint32_t i, uint32_t count) __attribute__((always_inline)) {
      Vector one = {}, other = all;
      Bits flags = 0;
      __builtin_memcpy(&flags, bits + i / 8, kWidth / 8 < count ? kWidth / 8 : (count + 7) / 8);
      __builtin_memcpy(&one, a + i * sizeof(Bits), count * sizeof(Bits));
      if constexpr (!scalar_operand) __builtin_memcpy(&other, b + i * sizeof(Bits), count * sizeof(Bits));
      const Vector chosen = ((Vector{} + flags) & Lane<Bits>::kBits) != 0 ? one : other;
      __builtin_memcpy(to + i * sizeof(Bits), &chosen, count * sizeof(Bits));
    };
    uint32_t i = 0;
    for (; i + kWidth <= r.count; i += kWidth) lanes(i, kWidth);
    if (i < r.count) lanes(i, r.count - i);
  }
}

template <class Bits>
void broadcast(const OperandRows& r, uint32_t) {
  constexpr uint32_t kPerBlock = kBlockBytes / sizeof(Bits);
  for (uint32_t i = 0; i < r.count; ++i) {
    Bits value, block[kPerBlock];
    __builtin_memcpy(&value, r.src[0] + i * sizeof(Bits), sizeof(Bits));
    for (Bits& each : block) each = value;
    __builtin_memcpy(r.dst + i * r.dst_step, block, sizeof(block));
  }
}

template <class T>
void widen_row(const std::byte* from, float* to, uint32_t count) {
  widen<T>(from, to, count);
}
template <class T>
void narrow_row(const float* from, std::byte* to, uint32_t count) {
  narrow<T>(from, to, count);
}

void sums_of_groups(const float* from, uint32_t groups, uint32_t group, float* to) {
  const auto sums = [&](uint32_t of) __attribute__((always_inline)) {
    for (uint32_t i = 0; i < groups; ++i) to[i] = static_cast<float>(sum_of(from + i * of, of));
  };
  switch (group) {
    case 2:
      for (uint32_t i = 0; i < groups; ++i) to[i] = from[2 * i] + from[2 * i + 1];
      return;
    case 8:
      return sums(8);
    case 64:
      return sums(64);
    default:
      return sums(group);
  }
}

// The best of each group of `group` floats, a power of 2 from 8 on, pair by pair: not of NaN.
template <bool largest>
INLINE void bests_of_pairs(const float* from, uint32_t groups, uint32_t group, float* to) {
  constexpr uint32_t kMost = 128;
  float pairs[2][kMost];
  for (uint32_t at = 0; at < groups * group; at += 2 * kMost) {
    const uint32_t all = groups * group - at < 2 * kMost ? groups * group - at : 2 * kMost;
    const float* last = from + at;
    for (uint32_t left = group, count = all, next = 0; left > 1; left /= 2, next ^= 1) {
      count /= 2;
      float* results = left == 2 ? to + at / group : pairs[next];
#pragma GCC ivdep
      for (uint32_t i = 0; i < count; ++i) results[i] = better<largest>(last[2 * i], last[2 * i + 1]);
      last = results;
    }
  }
}

template <bool largest>
INLINE void bests(const float* from, uint32_t groups, uint32_t group, float* to) {
  uint32_t has_nan = 0;
  if (group == 8 || group == 16) {
    for (uint32_t i = 0; i < groups * group; ++i) has_nan |= from[i] != from[i];
    if (has_nan == 0) return bests_of_pairs<largest>(from, groups, group, to);
    for (uint32_t i = 0; i < groups; ++i) {
      to[i] = from[i * group];
      for (uint32_t k = 1; k < group; ++k) to[i] = better<largest>(to[i], from[i * group + k]);
    }
    return;
  }
  for (uint32_t i = 0; i < groups; ++i) to[i] = best_of<largest>(from + i * group, group);
}

void store_lines(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__AVX512F__)
  for (size_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
#elif defined(__AVX2__)
  for (size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
#elif defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

// Each score's place is the number of those before it.
void sort32(const float* scores, uint8_t* order) {
  constexpr uint32_t kSize = 32;
  uint32_t places[kSize];
  for (uint32_t& place : places) place = 0;
  for (uint32_t k = 0; k < kSize; ++k) {
    const float score = scores[k];
    for (uint32_t i = 0; i < kSize; ++i) places[i] += (score > scores[i]) | ((score == scores[i]) & (k < i));
  }
  for (uint32_t i = 0; i < kSize; ++i) order[places[i]] = static_cast<uint8_t>(i);
}

template <class To, class From, RoundMode mode>
void cast_rows(const OperandRows& rows) {
  Elementwise<To, From>::run(rows, [](Computed<From> value) {
    if constexpr (std::is_same_v<To, From>)
      return rounded<mode>(value);
    else if constexpr (std::is_same_v<Computed<To>, Computed<From>>)
      return value;
    else if constexpr (!std::is_same_v<Computed<From>, float>)
      return static_cast<Computed<To>>(value);
    else
      return saturated<To>(rounded<mode>(value));
  });
}

// A cast in whose result the rounding mode shows.
template <class To, class From>
void cast_by_mode(const OperandRows& rows, uint32_t mode) {
  switch (static_cast<RoundMode>(mode)) {
    case RoundMode::CAST_FLOOR:
      return cast_rows<To, From, RoundMode::CAST_FLOOR>(rows);
    case RoundMode::CAST_CEIL:
      return cast_rows<To, From, RoundMode::CAST_CEIL>(rows);
    case RoundMode::CAST_ROUND:
      return cast_rows<To, From, RoundMode::CAST_ROUND>(rows);
    case RoundMode::CAST_TRUNC:
      return cast_rows<To, From, RoundMode::CAST_TRUNC>(rows);
    default:
      return cast_rows<To, From, RoundMode::CAST_RINT>(rows);
  }
}

template <class To, class From>
void cast_plainly(const OperandRows& rows, uint32_t /*mode*/) {
  cast_rows<To, From, RoundMode::CAST_RINT>(rows);
}

Loops made() {
  Loops all = {};
  UNARY(Abs, float_of(bits_of(a) & 0x7fffffff), half, float)
  UNARY(Exp, exponential(a), half, float)
  UNARY(Ln, logarithm(a), half, float)
  UNARY(Sqrt, __builtin_sqrtf(a), half, float)
  UNARY(Rsqrt, 1 / __builtin_sqrtf(a), half, float)
  UNARY(Reciprocal, 1 / a, half, float)
  UNARY(Relu, positive_part(a), half, float, int32_t)
  UNARY(Not, static_cast<T>(~a), int16_t, uint16_t)
  UNARY(Copy, a, uint16_t, uint32_t)
  UNARY(Adds, sum(a, s), half, float, int16_t, int32_t)
  UNARY(Muls, product(a, s), half, float, int16_t, int32_t)
  UNARY(Maxs, a > s ? a : s, half, float, int16_t, int32_t)
  UNARY(Mins, a < s ? a : s, half, float, int16_t, int32_t)
  UNARY(ShiftLeft, shifted_left(a, s), int16_t, uint16_t, int32_t, uint32_t)
  UNARY(ShiftRight, shifted_right(a, s), int16_t, uint16_t, int32_t, uint32_t)
  UNARY(LeakyRelu, a > 0 ? a : a * s, half, float)
  NULLARY(Duplicate, s, uint16_t, uint32_t)
  BINARY(Add, sum(a, b), half, float, int16_t, int32_t)
  BINARY(Sub, difference(a, b), half, float, int16_t, int32_t)
  BINARY(Mul, product(a, b), half, float, int16_t, int32_t)
  BINARY(Div, a / b, half, float)
  BINARY(Max, a > b ? a : b, half, float, int16_t, int32_t)
  BINARY(Min, a < b ? a : b, half, float, int16_t, int32_t)
  BINARY(And, static_cast<T>(a & b), int16_t, uint16_t)
  BINARY(Or, static_cast<T>(a | b), int16_t, uint16_t)
  BINARY(AddRelu, positive_part(sum(a, b)), half, float, int16_t)
  BINARY(SubRelu, positive_part(difference(a, b)), half, float, int16_t)
  BINARY(Axpy, a + s * b, half, float)
  ACCUMULATE(MulAddDst, d + a * b, half, float)
  ACCUMULATE(FusedMulAdd, d * a + b, half, float)
  ACCUMULATE(FusedMulAddRelu, positive_part(d * a + b), half, float)

  const auto to_float = [](const OperandRows& rows, uint32_t scalar) {
    Elementwise<float, float, half>::run(rows, [s = float_of(scalar)](float a, float b) { return a + s * b; });
  };
  set<half>(all, Operation::AxpyToFloat, to_float);
#define CAST_OF(Name, From, To, result)                                                     \
  set<From>(all, Operation::Name, [](const OperandRows& rows, uint32_t) {                   \
    using N = Computed<From>;                                                               \
    Elementwise<To, From, From>::run(rows, [](N a, N b) { return converted<To>(result); }); \
  });
  CAST_OF(AddReluCast, half, int8_t, positive_part(sum(a, b)))
  CAST_OF(AddReluCast, float, half, positive_part(sum(a, b)))
  CAST_OF(AddReluCast, int16_t, int8_t, positive_part(sum(a, b)))
  CAST_OF(SubReluCast, half, int8_t, positive_part(difference(a, b)))
  CAST_OF(SubReluCast, float, half, positive_part(difference(a, b)))
  CAST_OF(SubReluCast, int16_t, int8_t, positive_part(difference(a, b)))
  const auto mul_cast = [&]<class To>() {
    set<To>(all, Operation::MulCast, [](const OperandRows& rows, uint32_t) {
      Elementwise<To, half, half>::run(rows, [](float a, float b) { return converted<To>(a * b); });
    });
  };
  mul_cast.template operator()<int8_t>(), mul_cast.template operator()<uint8_t>();

  const auto cast = [&]<class To, class From>(Loop loop) {
    all.casts[static_cast<size_t>(dtype_of<To>())][static_cast<size_t>(dtype_of<From>())] = loop;
  };
#define CAST(how, From, To) cast.template operator()<To, From>(how<To, From>);
  CAST(cast_plainly, half, float)
  CAST(cast_plainly, bfloat16_t, float)
  CAST(cast_plainly, float, half)
  CAST(cast_plainly, float, bfloat16_t)
  CAST(cast_plainly, int8_t, half)
  CAST(cast_plainly, uint8_t, half)
  CAST(cast_plainly, int16_t, half)
  CAST(cast_plainly, int16_t, float)
  CAST(cast_plainly, int32_t, float)
  CAST(cast_plainly, int32_t, int64_t)
  CAST(cast_plainly, int64_t, float)
  CAST(cast_by_mode, float, float)
  CAST(cast_by_mode, half, int32_t)
  CAST(cast_by_mode, half, int16_t)
  CAST(cast_by_mode, half, int8_t)
  CAST(cast_by_mode, half, uint8_t)
  CAST(cast_by_mode, float, int32_t)
  CAST(cast_by_mode, float, int16_t)
  CAST(cast_by_mode, bfloat16_t, int32_t)

  const auto compared = [&]<class T>() {
    const auto of = [&]<CMPMODE mode>() {
      all.comparisons[static_cast<size_t>(dtype_of<T>())][static_cast<size_t>(mode)] = compare<T, mode, false>;
      all.scalar_comparisons[static_cast<size_t>(dtype_of<T>())][static_cast<size_t>(mode)] = compare<T, mode, true>;
    };
    of.template operator()<CMPMODE::LT>(), of.template operator()<CMPMODE::GT>(), of.template operator()<CMPMODE::EQ>();
    of.template operator()<CMPMODE::LE>(), of.template operator()<CMPMODE::GE>(), of.template operator()<CMPMODE::NE>();
  };
  compared.template operator()<half>(), compared.template operator()<float>();
  compared.template operator()<int32_t>();

  all.selections[0] = select<uint16_t, false>, all.selections[1] = select<uint32_t, false>;
  all.scalar_selections[0] = select<uint16_t, true>, all.scalar_selections[1] = select<uint32_t, true>;
  all.broadcasts[0] = broadcast<uint16_t>, all.broadcasts[1] = broadcast<uint32_t>;
  all.widen[0] = widen_row<half>, all.widen[1] = widen_row<bfloat16_t>;
  all.narrow[0] = narrow_row<half>, all.narrow[1] = narrow_row<bfloat16_t>;
  all.sums = sums_of_groups;
  all.sum = [](const float* from, uint32_t count) { return sum_of(from, count); };
  all.sum_of_squares = sum_of_squares;
  all.place = place;
  all.bests = [](const float* from, uint32_t groups, uint32_t group, bool largest, float* to) {
    largest ? bests<true>(from, groups, group, to) : bests<false>(from, groups, group, to);
  };
  all.store_lines = store_lines;
  all.sort32 = sort32;
  return all;
}

}  // namespace

const Loops& loops() {
  static const Loops all = made();
  return all;
}

}  // namespace AscendC::cpu::ASCENDC_CPU_LEVEL
