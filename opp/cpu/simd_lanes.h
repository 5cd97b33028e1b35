// SPDX-License-Identifier: Apache-2.0
// kLanes elements, in as many registers of OPP_SIMD_REGISTER bytes as floats of them take. simd.cpp includes this once
// for each level of vector instructions, before simd_loops.h.
// GCC's own vectors can have any size, but those larger than a register it keeps in memory between turns of a loop, and
// takes apart into single elements where they are compared or permuted.
// No include guard, and no includes: the levels are compiled with options that must not reach what others share.
namespace opp {
namespace OPP_SIMD_LEVEL {
namespace {

constexpr int64_t kPartLanes = OPP_SIMD_REGISTER / sizeof(float);
constexpr int64_t kParts = kLanes / kPartLanes;

template <class T>
using Part [[gnu::vector_size(kPartLanes * sizeof(T))]] = T;

template <class T>
using PartInMemory [[gnu::vector_size(kPartLanes * sizeof(T)), gnu::aligned(1), gnu::may_alias]] = T;

// Operators work by element, also with a number in the place of all elements; a comparison gives -1 where it holds and
// 0 where not.
template <class T>
struct Lanes {
  Part<T> parts[kParts];

  T operator[](int64_t lane) const { return parts[lane / kPartLanes][lane % kPartLanes]; }
};

template <class T>
constexpr bool kIsLanes = false;
template <class T>
constexpr bool kIsLanes<Lanes<T>> = true;

template <class T>
[[gnu::always_inline]] inline auto part(const T& operand, int64_t i) {
  if constexpr (kIsLanes<T>) {
    return operand.parts[i];
  } else {
    return operand;
  }
}

// Lanes of function(parts...), whose parts may have elements of another type.
template <class Function, class... Operands>
[[gnu::always_inline]] inline auto by_parts(Function function, const Operands&... operands) {
  Lanes<std::remove_cvref_t<decltype(function(part(operands, 0)...)[0])>> results;
#pragma GCC unroll 4
  for (int64_t i = 0; i < kParts; ++i) results.parts[i] = function(part(operands, i)...);
  return results;
}

#define OPP_SIMD_OPERATOR(op)                                                                    \
  template <class A, class B>                                                                    \
    requires(kIsLanes<A> || kIsLanes<B>)                                                         \
  [[gnu::always_inline]] inline auto operator op(const A& a, const B& b) {                       \
    return by_parts([](auto x, auto y) __attribute__((always_inline)) { return x op y; }, a, b); \
  }
OPP_SIMD_OPERATOR(+)
OPP_SIMD_OPERATOR(-)
OPP_SIMD_OPERATOR(*)
OPP_SIMD_OPERATOR(/)
OPP_SIMD_OPERATOR(&)
OPP_SIMD_OPERATOR(|)
OPP_SIMD_OPERATOR(^)
OPP_SIMD_OPERATOR(<<)
OPP_SIMD_OPERATOR(>>)
OPP_SIMD_OPERATOR(<)
OPP_SIMD_OPERATOR(>)
OPP_SIMD_OPERATOR(==)
OPP_SIMD_OPERATOR(!=)
#undef OPP_SIMD_OPERATOR

template <class T, class B>
[[gnu::always_inline]] inline void operator+=(Lanes<T>& a, const B& b) {
  a = a + b;
}

// a where the mask is not 0, and b where it is.
template <class T>
[[gnu::always_inline]] inline Lanes<T> choose(Lanes<int32_t> mask, Lanes<T> a, Lanes<T> b) {
  return by_parts([](auto m, auto x, auto y) __attribute__((always_inline)) { return m ? x : y; }, mask, a, b);
}

// The same bits as elements of another type of their size.
template <class To, class From>
[[gnu::always_inline]] inline Lanes<To> as(Lanes<From> x) {
  return by_parts([](auto from) __attribute__((always_inline)) { return reinterpret_cast<Part<To>>(from); }, x);
}

// Without AVX-512, GCC takes numbers apart that become a quarter of their size: they become half of it twice.
template <class To, class From>
[[gnu::always_inline]] inline Lanes<To> convert(Lanes<From> x) {
  if constexpr (kParts > 1 && sizeof(From) == 4 * sizeof(To)) {
    return convert<To>(convert<int16_t>(x));
  } else {
    return by_parts([](auto from) __attribute__((always_inline)) { return __builtin_convertvector(from, Part<To>); },
                    x);
  }
}

template <class T>
[[gnu::always_inline]] inline Lanes<T> load(const void* from) {
  const auto* parts = static_cast<const PartInMemory<T>*>(from);
  Lanes<T> x;
#pragma GCC unroll 4
  for (int64_t i = 0; i < kParts; ++i) x.parts[i] = parts[i];
  return x;
}

template <class T>
[[gnu::always_inline]] inline void store(Lanes<T> x, void* to) {
  auto* parts = static_cast<PartInMemory<T>*>(to);
#pragma GCC unroll 4
  for (int64_t i = 0; i < kParts; ++i) parts[i] = x.parts[i];
}

// Stores, side by side, those lanes for which the mask is not 0, and returns how many; writes over kLanes elements.
template <class T>
[[gnu::always_inline]] inline int64_t store_masked(Lanes<int32_t> mask, Lanes<T> x, T* to) {
#if OPP_SIMD_REGISTER == 64
  const auto words = reinterpret_cast<__m512i>(mask.parts[0]);
  const __mmask16 bits = _mm512_test_epi32_mask(words, words);
  const __m512i side_by_side = _mm512_maskz_compress_epi32(bits, reinterpret_cast<__m512i>(x.parts[0]));
  store(Lanes<T>{{reinterpret_cast<Part<T>>(side_by_side)}}, to);
  return std::popcount(bits);
#else
  int64_t count = 0;
  for (int64_t i = 0; i < kLanes; ++i) {
    to[count] = x[i];
    count -= mask[i];
  }
  return count;
#endif
}

// A vector's elements combined to one: its first half with its second, and so on.
template <class Vector, class Combine>
[[gnu::always_inline]] inline auto combine_by_halves(Vector x, Combine combine) {
  constexpr size_t kHalf = sizeof(x) / sizeof(x[0]) / 2;
  if constexpr (kHalf == 1) {
    return combine(x[0], x[1]);
  } else {
    return [=]<size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
      const auto half = combine(__builtin_shufflevector(x, x, i...), __builtin_shufflevector(x, x, kHalf + i...));
      return combine_by_halves(half, combine);
    }(std::make_index_sequence<kHalf>());
  }
}

// The same of all lanes, whatever the level.
template <class T, class Combine>
[[gnu::always_inline]] inline T combine_lanes(Lanes<T> x, Combine combine) {
  static_assert(kParts == 1 || kParts == 2 || kParts == 4);
  if constexpr (kParts == 1) return combine_by_halves(x.parts[0], combine);
  if constexpr (kParts == 2) return combine_by_halves(combine(x.parts[0], x.parts[1]), combine);
  if constexpr (kParts == 4) {
    return combine_by_halves(combine(combine(x.parts[0], x.parts[2]), combine(x.parts[1], x.parts[3])), combine);
  }
}

[[gnu::always_inline]] inline float sum_of(Lanes<float> x) {
  return combine_lanes(x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

template <class T>
[[gnu::always_inline]] inline T largest_of(Lanes<T> x) {
  return combine_lanes(x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

// The elements of a and b by turns: those of their first half, or of their second.
template <bool kSecond, class Vector>
[[gnu::always_inline]] inline Vector zip(Vector a, Vector b) {
  constexpr size_t kCount = sizeof(a) / sizeof(a[0]);
  return [a, b]<size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (kSecond * kCount / 2 + i / 2 + i % 2 * kCount)...);
  }(std::make_index_sequence<kCount>());
}

template <bool kSecond, class T>
[[gnu::always_inline]] inline Lanes<T> zip(Lanes<T> a, Lanes<T> b) {
  if constexpr (kParts == 1) {
    return {{zip<kSecond>(a.parts[0], b.parts[0])}};
  } else {
    constexpr int64_t kFirst = kSecond ? kParts / 2 : 0;
    Lanes<T> zipped;
    for (int64_t i = 0; i < kParts / 2; ++i) {
      zipped.parts[2 * i] = zip<false>(a.parts[kFirst + i], b.parts[kFirst + i]);
      zipped.parts[2 * i + 1] = zip<true>(a.parts[kFirst + i], b.parts[kFirst + i]);
    }
    return zipped;
  }
}

}  // namespace
}  // namespace OPP_SIMD_LEVEL
}  // namespace opp
