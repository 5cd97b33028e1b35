// SPDX-License-Identifier: Apache-2.0
#include "rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include <algorithm>

#include "checks.h"

using namespace cann_cpu;

namespace {

at::Tensor half_turned(const at::Tensor& x, int64_t sign) {
  const auto parts = x.chunk(2, -1);
  return at::cat({parts[1] * at::Scalar(-sign), parts[0] * at::Scalar(sign)}, -1);
}

// What is added to x times the sine: the other of each pair, the first with a minus. With sign -1 the inverse.
at::Tensor turned(const at::Tensor& x, Pairs pairs, int64_t sign = 1) {
  switch (pairs) {
    case Pairs::Half:
    case Pairs::InterleaveHalf:  // of numbers that are ordered already
      return half_turned(x, sign);
    case Pairs::Interleave:
      return half_turned(x.unflatten(-1, {-1, 2}), sign).flatten(-2);
    case Pairs::Quarter: {
      const auto halves = x.chunk(2, -1);
      return at::cat({half_turned(halves[0], sign), half_turned(halves[1], sign)}, -1);
    }
  }
  return {};
}

// Interleave-half turns the even numbers and the odd ones as two halves.
at::Tensor ordered(const at::Tensor& x, Pairs pairs) {
  return pairs == Pairs::InterleaveHalf ? x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : x;
}
at::Tensor reordered(const at::Tensor& x, Pairs pairs) {
  return pairs == Pairs::InterleaveHalf ? x.unflatten(-1, {2, -1}).transpose(-1, -2).flatten(-2) : x;
}

}  // namespace

Pairs cann_cpu::pairs_of(int64_t mode, In x) {
  TORCH_CHECK(mode >= 0 && mode <= 3, "mode must be 0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half), got ",
              mode);
  const auto pairs = static_cast<Pairs>(mode);
  const int64_t divisor = pairs == Pairs::Quarter ? 4 : 2;
  TORCH_CHECK(x.dim() > 0 && x.size(-1) % divisor == 0, "the last dimension must divide by ", divisor, ", got shape ",
              x.sizes());
  return pairs;
}

at::Tensor cann_cpu::rotated(In x, In cosine, In sine, Pairs pairs) {
  const auto turnable = ordered(in_float(x), pairs);
  return turnable * cosine + turned(turnable, pairs) * sine;
}

namespace {

// Writes x turned, a part of its longest dimension at a time: the copies in float would take more memory than there is.
void write_rotated(const at::Tensor& out, In x, In cosine, In sine, Pairs pairs) {
  TORCH_CHECK(out.sizes() == x.sizes(), "out has shape ", out.sizes(), "; expected ", x.sizes(), ", as x");
  if (x.numel() == 0) return;
  constexpr int64_t kElements = 1 << 21;  // of x at a time
  const auto sizes = x.sizes().slice(0, x.dim() - 1);
  const int64_t dim = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
  const int64_t step = std::max<int64_t>(1, kElements / (x.numel() / x.size(dim)));
  const int64_t rank = x.dim();
  for (int64_t begin = 0; begin < x.size(dim); begin += step) {
    const int64_t count = std::min(step, x.size(dim) - begin);
    const auto part = [&](In angle) {
      const int64_t at = dim - rank + angle.dim();
      return at < 0 || angle.size(at) == 1 ? angle : angle.narrow(at, begin, count);
    };
    out.narrow(dim, begin, count).copy_(rotated(x.narrow(dim, begin, count), part(cosine), part(sine), pairs));
  }
}

}  // namespace

ACLNN(RotaryPositionEmbedding, [](In self, In cosine, In sine, int64_t mode, Out out) {
  write_rotated(out, self, cosine, sine, pairs_of(mode, self));
});
// A given matrix turns x in place of the mode.
ACLNN_TYPED(RotaryPositionEmbeddingV2, "x: float32 float16 bfloat16; cos, sin, rotate, out: as x",
            [](In x, In cos, In sin, int64_t mode, OptionalIn rotate, Out out) {
              TORCH_CHECK(x.dim() == 3 || x.dim() == 4, "x has shape ", x.sizes(), "; expected 3 or 4 dimensions");
              const Pairs pairs = pairs_of(mode, x);
              TORCH_CHECK(cos.sizes() == sin.sizes(), "sin has shape ", sin.sizes(), "; expected ", cos.sizes(),
                          ", as cos");
              if (!rotate.has_value()) return write_rotated(out, x, cos, sin, pairs);
              check_shape("rotate", *rotate, {x.size(-1), x.size(-1)});
              const auto wide = in_float(x);
              assign(out, wide * cos + at::matmul(wide, in_float(*rotate)) * sin);
            });
// Without x, the gradients of the sine and the cosine are not asked for.
ACLNN(RotaryPositionEmbeddingGrad, [](In grad, In cosine, In sine, OptionalIn self, int64_t mode, Out grad_self,
                                      OptionalOut grad_cosine, OptionalOut grad_sine) {
  const Pairs pairs = pairs_of(mode, grad);
  const auto dy = in_float(grad);
  assign(grad_self, reordered(dy * cosine + turned(dy * sine, pairs, -1), pairs));
  if (!self.has_value()) return;
  const auto x = ordered(in_float(*self), pairs);
  assign(grad_cosine, (dy * x).sum_to_size(cosine.sizes()));
  assign(grad_sine, (dy * turned(x, pairs)).sum_to_size(sine.sizes()));
});

namespace {

enum RotaryLayout : int64_t { kRotaryBsnd = 1, kRotaryTnd = 4 };

// Heads of query and key at each place, and one angle for all of them.
void apply_rotary(InOut query, InOut key, In cos, In sin, int64_t layout, Text mode) {
  TORCH_CHECK(layout == kRotaryBsnd || layout == kRotaryTnd, "layout is ", layout, "; expected 1 (BSND) or 4 (TND)");
  TORCH_CHECK(mode == "half", "rotary_mode is \"", mode, "\"; expected half");
  const int64_t rank = layout == kRotaryBsnd ? 4 : 3;
  check_rank("query", query, rank);
  check_rank("key", key, rank);
  const int64_t size = query.size(-1);
  TORCH_CHECK(size == 64 || size == 128, "query has heads of size ", size, "; expected 64 or 128");
  auto sizes = query.sizes().vec();
  sizes[rank - 2] = key.size(-2);
  check_shape("key", key, sizes);
  sizes[rank - 2] = 1;
  check_shape("cos", cos, sizes);
  check_shape("sin", sin, sizes);
  write_rotated(query, query, cos, sin, Pairs::Half);
  write_rotated(key, key, cos, sin, Pairs::Half);
}

constexpr const char* kApplyRotaryDtypes = "query: float32 float16 bfloat16; key, cos, sin: as query";

}  // namespace

ACLNN_TYPED(ApplyRotaryPosEmb, kApplyRotaryDtypes, [](InOut query, InOut key, In cos, In sin, int64_t layout) {
  apply_rotary(query, key, cos, sin, layout, "half");
});
ACLNN_TYPED(ApplyRotaryPosEmbV2, kApplyRotaryDtypes,
            [](InOut query, InOut key, In cos, In sin, int64_t layout, Text rotary_mode) {
              apply_rotary(query, key, cos, sin, layout, rotary_mode);
            });

ACLNN_TYPED(InterleaveRope, "x: float16 bfloat16; cos, sin, out: as x", [](In x, In cos, In sin, Out out) {
  check_rank("x", x, 4);
  TORCH_CHECK(x.size(3) == 64, "x has heads of size ", x.size(3), "; expected 64");
  check_rank("cos", cos, 4);
  check_shape("cos", cos, {x.size(0), 1, cos.size(2) == 1 ? 1 : x.size(2), 64});
  check_shape("sin", sin, cos.sizes());
  write_rotated(out, x, cos, sin, Pairs::InterleaveHalf);
});

namespace {

// Angles of a cache of cosines and sines, by each token's position, or by its positions in several directions
// (sections of the angles, or angles that take turns).
struct CachedAngles {
  In positions, query, key, cache;
  Ints sections;
  int64_t head_size, cache_mode;

  // The sections are not looked at for positions in one direction: where there are none, torch_npu 2.13 passes a list
  // that it has freed.
  bool has_sections() const { return positions.dim() == 2; }
  int64_t rotary_size() const { return cache.size(1); }

  void check(In query_out, In key_out) const {
    check_rank("query_in", query, 2);
    check_rank("key_in", key, 2);
    check_rank("cos_sin_cache", cache, 2);
    const int64_t multiple = query.scalar_type() == at::kFloat ? 16 : 32;
    TORCH_CHECK(head_size > 0 && head_size % multiple == 0, "head_size is ", head_size, "; expected a multiple of ",
                multiple);
    TORCH_CHECK(rotary_size() <= head_size && rotary_size() % multiple == 0, "cos_sin_cache has rows of ",
                rotary_size(), "; expected a multiple of ", multiple, " up to head_size, ", head_size);
    const int64_t tokens = query.size(0);
    TORCH_CHECK(query.size(1) % head_size == 0, "query_in has rows of ", query.size(1), "; expected heads of ",
                head_size);
    TORCH_CHECK(key.size(0) == tokens && key.size(1) % head_size == 0, "key_in has shape ", key.sizes(), "; expected ",
                tokens, " rows of heads of ", head_size);
    check_shape("query_out", query_out, query.sizes());
    check_shape("key_out", key_out, key.sizes());
    check_range("cache_mode", cache_mode, 0, 1);
    if (!has_sections()) {
      TORCH_CHECK(cache_mode == 0, "cache_mode is 1 for positions of one dimension; expected 0");
      return cann_cpu::check_shape("positions", positions, {tokens});
    }
    static const std::vector<int64_t> kSections[] = {{16, 24, 24}, {24, 20, 20}, {8, 12, 12}, {16, 16, 16, 16}};
    auto given = sections.vec();
    if (given.size() == 4 && given[3] == 0) given.pop_back();
    TORCH_CHECK(std::find(std::begin(kSections), std::end(kSections), given) != std::end(kSections),
                "mrope_section is ", sections,
                "; expected [16, 24, 24], [24, 20, 20], [8, 12, 12] or [16, 16, 16, 16]");
    int64_t sum = 0;
    for (const int64_t size : given) sum += size;
    TORCH_CHECK(sum == rotary_size() / 2, "mrope_section has the sum ", sum, "; expected ", rotary_size() / 2,
                ", half the rows of cos_sin_cache");
    TORCH_CHECK(cache_mode == 0 || given.size() == 3, "cache_mode is 1 with four sections; expected 0");
    cann_cpu::check_shape("positions", positions, {static_cast<int64_t>(given.size()), tokens});
  }

  // Cosines or sines of (tokens, 1, rotary size / 2), from those of each direction.
  at::Tensor merged(In angles) const {
    if (!has_sections()) return angles.unsqueeze(1);
    at::Tensor result = angles[0].clone();
    int64_t begin = sections[0];
    for (int64_t i = 1; i < angles.size(0); ++i) {
      const auto part = [&](In all) {
        return cache_mode == 0 ? all.narrow(1, begin, sections[i]) : all.slice(1, i, sections[i] * 3, 3);
      };
      part(result).copy_(part(angles[i]));
      begin += sections[i];
    }
    return result.unsqueeze(1);
  }

  void turn(Pairs pairs, Out query_out, Out key_out) const {
    check_values("positions", positions, 0, cache.size(0) - 1);
    auto sizes = positions.sizes().vec();
    sizes.push_back(rotary_size());
    const auto rows = cache.index_select(0, positions.reshape({-1}).to(at::kLong)).view(sizes);
    const auto parts = rows.chunk(2, -1);
    const auto of_pairs = [&](In angles) {
      const auto merged_angles = merged(angles);
      return pairs == Pairs::Half ? at::cat({merged_angles, merged_angles}, -1)
                                  : merged_angles.repeat_interleave(2, -1);
    };
    const auto cosine = of_pairs(parts[0]), sine = of_pairs(parts[1]);
    for (const auto& [in, out] : {std::pair(query, query_out), std::pair(key, key_out)}) {
      const auto x = in.unflatten(1, {-1, head_size}), y = out.unflatten(1, {-1, head_size});
      write_rotated(y.narrow(2, 0, rotary_size()), x.narrow(2, 0, rotary_size()), cosine, sine, pairs);
      const int64_t rest = head_size - rotary_size();
      y.narrow(2, rotary_size(), rest).copy_(x.narrow(2, rotary_size(), rest));
    }
  }
};

constexpr const char* kCachedDtypes =
    "positions: int32 int64; query_in: float32 float16 bfloat16; key_in, cos_sin_cache, query_out, key_out: as "
    "query_in";

Pairs pairs_of_style(bool is_neox) { return is_neox ? Pairs::Half : Pairs::Interleave; }

}  // namespace

ACLNN_TYPED_CHECKED(RopeWithSinCosCache, kCachedDtypes,
                    [](Phase phase, In positions, In query_in, In key_in, In cos_sin_cache, OptionalInts mrope_section,
                       int64_t head_size, bool is_neox_style, Out query_out, Out key_out) {
                      const CachedAngles cached_angles{
                          positions, query_in, key_in, cos_sin_cache, mrope_section.value_or(Ints()), head_size, 0};
                      cached_angles.check(query_out, key_out);
                      if (phase == Phase::Check) return;
                      cached_angles.turn(pairs_of_style(is_neox_style), query_out, key_out);
                    });
ACLNN_TYPED_CHECKED(RopeWithSinCosCacheV2, kCachedDtypes,
                    [](Phase phase, In positions, In query_in, In key_in, In cos_sin_cache, OptionalInts mrope_section,
                       int64_t head_size, bool is_neox_style, int64_t cache_mode, Out query_out, Out key_out) {
                      const CachedAngles cached_angles{
                          positions, query_in,  key_in, cos_sin_cache, mrope_section.value_or(Ints()),
                          head_size, cache_mode};
                      cached_angles.check(query_out, key_out);
                      if (phase == Phase::Check) return;
                      cached_angles.turn(pairs_of_style(is_neox_style), query_out, key_out);
                    });
