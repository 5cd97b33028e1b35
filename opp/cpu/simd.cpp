// Loops that are compiled once for each vector extension; the machine's best is chosen at run time.
#include "cpu/simd.h"

#if defined(__x86_64__)
#define OPP_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OPP_SIMD_CLONES
#endif

namespace opp {
namespace {

// The compiler maps these to as many registers of the target as they take.
typedef float Floats __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));

template <class T>
[[gnu::always_inline]] inline void convert(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

OPP_SIMD_CLONES
void weighted_relu_sums(const float* products, int64_t stride, int64_t rows, const float* weights, int64_t heads,
                        float* scores) {
  const int64_t whole = heads / kLanes * kLanes;
  Ints in_tail{};
  for (int64_t i = whole; i < heads; ++i) in_tail[i - whole] = -1;

  for (int64_t r = 0; r < rows; ++r) {
    const float* product = products + r * stride;
    Floats sum{};
    for (int64_t h = 0; h < whole; h += kLanes) {
      const Floats x = *reinterpret_cast<const Floats*>(product + h);
      sum += *reinterpret_cast<const Floats*>(weights + h) * (x < 0.0F ? Floats{} : x);
    }
    if (whole < heads) {
      const Floats x = *reinterpret_cast<const Floats*>(product + whole);
      const Floats relu = x < 0.0F ? Floats{} : x;
      sum += *reinterpret_cast<const Floats*>(weights + whole) * (in_tail ? relu : Floats{});
    }
    const auto eight = __builtin_shufflevector(sum, sum, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(sum, sum, 8, 9, 10, 11, 12, 13, 14, 15);
    const auto four =
        __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
    const auto two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
    scores[r] = two[0] + two[1];
  }
}

OPP_SIMD_CLONES
void to_float(const at::Half* from, int64_t count, float* to) { convert(from, count, to); }

OPP_SIMD_CLONES
void to_float(const at::BFloat16* from, int64_t count, float* to) { convert(from, count, to); }

}  // namespace opp
