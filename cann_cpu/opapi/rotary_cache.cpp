// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation and rotary embedding of keys and values that go into a cache, quantised where the
// cache is int8.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "checks.h"
#include "normalization.h"
#include "pages.h"
#include "quantization.h"
#include "rotary.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kCachedTokens = 8192;  // at a time

at::Tensor normalized_by_rms(In x, In gamma, double epsilon) { return std::get<0>(rms_norm(x, gamma, epsilon)); }

// The heads of a cache in FRACTAL_NZ lie in columns of 32 bytes.
int64_t nz_column_size(In cache) { return 32 / static_cast<int64_t>(cache.element_size()); }

// The scale and the offset of what is written to an int8 cache.
struct CacheQuantization {
  OptionalIn scale, offset;

  void check(const char* cache_name, In cache, const char* scale_name, const char* offset_name,
             std::vector<std::vector<int64_t>> shapes) const {
    const bool quantized = cache.scalar_type() == at::kChar;
    TORCH_CHECK(quantized == scale.has_value(), cache_name, " has dtype ", cache.scalar_type(), "; ", scale_name,
                quantized ? " must be given" : " is only for an int8 cache");
    TORCH_CHECK(scale.has_value() || !offset.has_value(), offset_name, " is given without ", scale_name);
    const auto check_shape = [&](const char* name, OptionalIn tensor) {
      if (!tensor.has_value()) return;
      TORCH_CHECK(std::find(shapes.begin(), shapes.end(), tensor->sizes()) != shapes.end(), name, " has shape ",
                  tensor->sizes(), "; expected ", at::IntArrayRef(shapes.front()));
    };
    check_shape(scale_name, scale);
    check_shape(offset_name, offset);
  }

  // x times the scale, or divided by it, rounded half to even.
  at::Tensor multiplied(In x) const { return scale.has_value() ? rounded(x * *scale) : x; }
  at::Tensor divided(In x) const { return scale.has_value() ? rounded(x / *scale) : x; }

 private:
  at::Tensor rounded(at::Tensor x) const {
    if (offset.has_value()) x = x + *offset;
    return saturated(x, at::kChar);
  }
};

enum class RotaryCacheMode { Norm, Paged, PagedNz, Blocks, BlocksNz };

RotaryCacheMode rotary_cache_mode(Text name) {
  static constexpr std::pair<const char*, RotaryCacheMode> kModes[] = {
      {"", RotaryCacheMode::Norm},
      {"Norm", RotaryCacheMode::Norm},
      {"PA", RotaryCacheMode::Paged},
      {"PA_BNSD", RotaryCacheMode::Paged},
      {"PA_NZ", RotaryCacheMode::PagedNz},
      {"PA_BLK_BNSD", RotaryCacheMode::Blocks},
      {"PA_BLK_NZ", RotaryCacheMode::BlocksNz},
  };
  for (const auto& [text, mode] : kModes) {
    if (name == text) return mode;
  }
  TORCH_CHECK(false, "cache_mode is \"", name, "\"; expected Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ");
}

// A head of kv is a part that is normalised and a part that is turned. With v, all of it is normalised, its first part
// is turned then, and v is cached as it is.
struct KeyValue {
  In kv, gamma, cos, sin, index;
  InOut k_cache, ckv_cache;
  CacheQuantization key, value;
  OptionalIn v;
  double epsilon;
  RotaryCacheMode mode;
  Out k_rope, c_kv;
  bool is_output_kv;

  int64_t batch() const { return kv.size(0); }
  int64_t heads() const { return kv.size(1); }
  int64_t length() const { return kv.size(2); }
  int64_t key_size() const { return v.has_value() ? kv.size(3) : cos.size(3); }
  int64_t value_size() const { return v.has_value() ? v->size(3) : gamma.size(0); }
  bool is_nz() const { return mode == RotaryCacheMode::PagedNz || mode == RotaryCacheMode::BlocksNz; }
  bool is_by_block() const { return mode == RotaryCacheMode::Blocks || mode == RotaryCacheMode::BlocksNz; }
  int64_t blocks_of_sequence() const { return (length() + k_cache.size(1) - 1) / k_cache.size(1); }

  void check() const {
    check_rank("kv", kv, 4);
    check_rank("gamma", gamma, 1);
    check_rank("cos", cos, 4);
    if (v.has_value()) {
      check_shape("kv", kv, {batch(), heads(), length(), 192});
      check_shape("v", *v, {batch(), heads(), length(), 128});
      check_shape("gamma", gamma, {192});
    } else {
      check_shape("kv", kv, {batch(), 1, length(), 576});
      check_shape("gamma", gamma, {512});
    }
    check_shape("cos", cos, {batch(), 1, cos.size(2) == 1 ? 1 : length(), 64});
    check_shape("sin", sin, cos.sizes());
    check_cache("k_cache", k_cache, key_size());
    check_cache("ckv_cache", ckv_cache, value_size());
    TORCH_CHECK(k_cache.size(0) == ckv_cache.size(0) && k_cache.size(1) == ckv_cache.size(1) &&
                    k_cache.size(2) == ckv_cache.size(2),
                "ckv_cache has shape ", ckv_cache.sizes(), "; expected the blocks of k_cache, ", k_cache.sizes());
    key.check("k_cache", k_cache, "k_rope_scale", "k_rope_offset", {{key_size()}, {1}, {heads(), key_size()}});
    value.check("ckv_cache", ckv_cache, "c_kv_scale", "c_kv_offset", {{value_size()}, {1}, {heads(), value_size()}});
    if (mode == RotaryCacheMode::Norm) {
      check_shape("index", index, {batch(), length()});
    } else {
      check_shape("index", index, {batch() * (is_by_block() ? blocks_of_sequence() : length())});
    }
    if (!is_output_kv) return;
    check_shape("k_rope", k_rope, {batch(), heads(), length(), key_size()});
    check_shape("c_kv", c_kv, {batch(), heads(), length(), value_size()});
  }

  void run() const {
    const int64_t last = mode == RotaryCacheMode::Norm ? k_cache.size(2) : k_cache.size(0) * k_cache.size(1);
    check_values("index", index, 0, last - 1, -1);
    const auto by_token = [&](In tensor) { return tensor.transpose(1, 2).flatten(0, 1); };  // (tokens, heads, size)
    const auto angle = [&](In all) { return by_token(all.expand({batch(), 1, length(), all.size(3)})); };
    const auto x = by_token(kv), cosine = angle(cos), sine = angle(sin);
    const auto slots = slots_of_tokens();
    const Pages key_pages(by_place(k_cache)), value_pages(by_place(ckv_cache));
    at::Tensor keys, values;  // of all tokens, where they are asked for
    if (is_output_kv) {
      keys = at::empty({x.size(0), heads(), key_size()}, k_rope.options());
      values = at::empty({x.size(0), heads(), value_size()}, c_kv.options());
    }
    for (int64_t begin = 0; begin < x.size(0); begin += kCachedTokens) {
      const int64_t count = std::min(kCachedTokens, x.size(0) - begin);
      const auto part = [&](In all) { return all.narrow(0, begin, count); };
      const auto turned = [&](In turnable) {
        return rotated(turnable, part(cosine), part(sine), Pairs::InterleaveHalf);
      };
      at::Tensor k, c;
      if (v.has_value()) {
        const auto normal = normalized_by_rms(part(x), gamma, epsilon);
        const int64_t size = cos.size(3);
        k = at::cat({turned(normal.narrow(2, 0, size)), normal.narrow(2, size, key_size() - size)}, -1);
        c = part(by_token(*v)).to(at::kFloat);
      } else {
        k = turned(part(x).narrow(2, value_size(), key_size()));
        c = normalized_by_rms(part(x).narrow(2, 0, value_size()), gamma, epsilon);
      }
      scatter(key_pages, key.multiplied(k).to(k_cache.scalar_type()), part(slots));
      scatter(value_pages, value.multiplied(c).to(ckv_cache.scalar_type()), part(slots));
      if (!is_output_kv) continue;
      part(keys).copy_(k);
      part(values).copy_(c);
    }
    if (!is_output_kv) return;
    k_rope.copy_(keys.unflatten(0, {batch(), length()}).transpose(1, 2));
    c_kv.copy_(values.unflatten(0, {batch(), length()}).transpose(1, 2));
  }

 private:
  void check_cache(const char* name, In cache, int64_t size) const {
    check_rank(name, cache, 4);
    if (mode == RotaryCacheMode::Norm) return check_shape(name, cache, {batch(), heads(), cache.size(2), size});
    check_shape(name, cache, {cache.size(0), cache.size(1), heads(), size});
    if (is_nz()) check_contiguous(name, cache);
  }

  // A view of a cache whose first two dimensions are those of a place.
  at::Tensor by_place(const at::Tensor& cache) const {
    if (mode == RotaryCacheMode::Norm) return cache.transpose(1, 2);
    if (!is_nz()) return cache;
    const int64_t size = nz_column_size(cache);
    return cache.view({cache.size(0), cache.size(2), cache.size(3) / size, cache.size(1), size})
        .permute({0, 3, 1, 2, 4});
  }

  // Negative where a token has none.
  at::Tensor slots_of_tokens() const {
    const auto given = index.to(at::kLong).reshape({-1});
    const auto each = [&](int64_t count) { return at::arange(count, at::kLong); };
    if (mode == RotaryCacheMode::Norm) {
      const auto first = each(batch()).mul_(k_cache.size(2)).repeat_interleave(length());
      return (given + first).masked_fill_(given.lt(0), -1);
    }
    if (!is_by_block()) return given;
    const int64_t size = k_cache.size(1);
    const auto place = each(length());
    const auto first = given.view({batch(), -1}).index_select(1, place.div(size, "floor")).reshape({-1});
    return (first.div(size, "floor") * at::Scalar(size) + place.remainder(size).repeat({batch()}))
        .masked_fill_(first.lt(0), -1);
  }
};

constexpr const char* kKeyValueDtypes =
    "kv: float16 bfloat16; gamma, cos, sin, v, k_rope, c_kv: as kv; index: int64; k_cache, ckv_cache: float16 bfloat16 "
    "int8; k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset: float32";

}  // namespace

ACLNN_TYPED_CHECKED(
    KvRmsNormRopeCache,
    "kv: float16 bfloat16; gamma, cos, sin, k_rope, c_kv: as kv; index: int64; k_cache, ckv_cache: float16 bfloat16 "
    "int8; "
    "k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset: float32",
    [](Phase phase, In kv, In gamma, In cos, In sin, In index, InOut k_cache, InOut ckv_cache, OptionalIn k_rope_scale,
       OptionalIn c_kv_scale, OptionalIn k_rope_offset, OptionalIn c_kv_offset, double epsilon, Text cache_mode,
       bool is_output_kv, Out k_rope, Out c_kv) {
      check_or_run(phase, KeyValue({kv,
                                    gamma,
                                    cos,
                                    sin,
                                    index,
                                    k_cache,
                                    ckv_cache,
                                    k_rope_scale,
                                    k_rope_offset,
                                    c_kv_scale,
                                    c_kv_offset,
                                    {},
                                    epsilon,
                                    rotary_cache_mode(cache_mode),
                                    k_rope,
                                    c_kv,
                                    is_output_kv}));
    });
ACLNN_TYPED_CHECKED(KvRmsNormRopeCacheV2, kKeyValueDtypes,
                    [](Phase phase, In kv, In gamma, In cos, In sin, In index, InOut k_cache, InOut ckv_cache,
                       OptionalIn k_rope_scale, OptionalIn c_kv_scale, OptionalIn k_rope_offset, OptionalIn c_kv_offset,
                       OptionalIn v, double epsilon, Text cache_mode, bool is_output_kv, Out k_rope, Out c_kv) {
                      check_or_run(phase, KeyValue({kv, gamma, cos, sin, index, k_cache, ckv_cache, k_rope_scale,
                                                    k_rope_offset, c_kv_scale, c_kv_offset, v, epsilon,
                                                    rotary_cache_mode(cache_mode), k_rope, c_kv, is_output_kv}));
                    });

namespace {

// Rows of heads of queries, keys and values, for a cache in FRACTAL_NZ.
struct QueryKeyValue {
  In qkv, q_gamma, k_gamma, cos, sin, index;
  Out q_out, k_cache, v_cache;
  CacheQuantization key, value;
  Ints qkv_size, head_nums;
  double epsilon;
  Text cache_mode;
  OptionalOut q_before, k_before, v_before;

  static constexpr int64_t kSize = 128;  // of a head

  int64_t tokens() const { return qkv.size(0); }
  int64_t block_size() const { return k_cache.size(2); }

  void check() const {
    TORCH_CHECK(cache_mode == "PA_NZ", "cache_mode is \"", cache_mode, "\"; expected PA_NZ");
    TORCH_CHECK(qkv_size.size() == 4 && qkv_size[3] == kSize, "qkv_size is ", qkv_size,
                "; expected batch, sequence, heads and 128");
    TORCH_CHECK(head_nums.size() == 3 && head_nums[1] == head_nums[2] &&
                    head_nums[0] + head_nums[1] + head_nums[2] == qkv_size[2],
                "head_nums is ", head_nums, "; expected the heads of queries, keys and values, together ", qkv_size[2]);
    check_shape("qkv", qkv, {qkv_size[0] * qkv_size[1], qkv_size[2] * kSize});
    check_shape("q_gamma", q_gamma, {kSize});
    check_shape("k_gamma", k_gamma, {kSize});
    check_shape("cos", cos, {tokens(), kSize});
    check_shape("sin", sin, {tokens(), kSize});
    check_shape("index", index, {tokens()});
    const auto rows = [&](int64_t heads) { return std::vector<int64_t>{tokens(), heads * kSize}; };
    check_shape("q_out", q_out, rows(head_nums[0]));
    check_cache("k_cache", k_cache);
    check_cache("v_cache", v_cache);
    TORCH_CHECK(k_cache.size(0) == v_cache.size(0) && k_cache.size(2) == v_cache.size(2), "v_cache has shape ",
                v_cache.sizes(), "; expected the blocks of k_cache, ", k_cache.sizes());
    key.check("k_cache", k_cache, "k_scale", "k_offset", {{head_nums[1], kSize}});
    value.check("v_cache", v_cache, "v_scale", "v_offset", {{head_nums[2], kSize}});
    if (q_before.has_value()) check_shape("q_out_before_quant", *q_before, rows(head_nums[0]));
    if (k_before.has_value()) check_shape("k_out_before_quant", *k_before, rows(head_nums[1]));
    if (v_before.has_value()) check_shape("v_out_before_quant", *v_before, rows(head_nums[2]));
  }

  void run() const {
    check_values("index", index, 0, k_cache.size(0) * block_size() - 1, -1);
    const auto slots = index.to(at::kLong);
    const Pages key_pages(k_cache.permute({0, 2, 1, 3})), value_pages(v_cache.permute({0, 2, 1, 3}));
    const auto heads = qkv.unflatten(1, {qkv_size[2], kSize});
    constexpr int64_t kAtOnce = 512;  // of the many heads of all three
    for (int64_t begin = 0; begin < tokens(); begin += kAtOnce) {
      const int64_t count = std::min(kAtOnce, tokens() - begin);
      const auto part = [&](In all) { return all.narrow(0, begin, count); };
      const auto cosine = part(cos).unsqueeze(1), sine = part(sin).unsqueeze(1);
      const auto turned = [&](In x, In gamma) {
        return rotated(normalized_by_rms(x, gamma, epsilon), cosine, sine, Pairs::Half);
      };
      const auto parts = part(heads).split_with_sizes(head_nums, 1);
      const auto q = turned(parts[0], q_gamma), k = turned(parts[1], k_gamma), v = parts[2].to(at::kFloat);
      part(q_out).copy_(q.flatten(1));
      scatter(key_pages, key.divided(k).to(k_cache.scalar_type()), part(slots));
      scatter(value_pages, value.divided(v).to(v_cache.scalar_type()), part(slots));
      if (q_before.has_value()) part(*q_before).copy_(q.flatten(1));
      if (k_before.has_value()) part(*k_before).copy_(k.flatten(1));
      if (v_before.has_value()) part(*v_before).copy_(v.flatten(1));
    }
  }

 private:
  void check_cache(const char* name, In cache) const {
    check_rank(name, cache, 4);
    const int64_t size = nz_column_size(cache);
    check_shape(name, cache, {cache.size(0), head_nums[1] * kSize / size, cache.size(2), size});
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    QkvRmsNormRopeCache,
    "qkv: float16 bfloat16; q_gamma, k_gamma, cos, sin, q_out, q_out_before_quant, k_out_before_quant, "
    "v_out_before_quant: as qkv; index: int64; k_cache, v_cache: float16 bfloat16 int8; k_scale, v_scale, k_offset, "
    "v_offset: float32",
    [](Phase phase, In qkv, In q_gamma, In k_gamma, In cos, In sin, In index, Out q_out, Out k_cache, Out v_cache,
       OptionalIn k_scale, OptionalIn v_scale, OptionalIn k_offset, OptionalIn v_offset, Ints qkv_size, Ints head_nums,
       double epsilon, Text cache_mode, OptionalOut q_out_before_quant, OptionalOut k_out_before_quant,
       OptionalOut v_out_before_quant) {
      check_or_run(phase, QueryKeyValue({qkv,
                                         q_gamma,
                                         k_gamma,
                                         cos,
                                         sin,
                                         index,
                                         q_out,
                                         k_cache,
                                         v_cache,
                                         k_scale,
                                         k_offset,
                                         v_scale,
                                         v_offset,
                                         qkv_size,
                                         head_nums,
                                         epsilon,
                                         cache_mode,
                                         q_out_before_quant,
                                         k_out_before_quant,
                                         v_out_before_quant}));
    });
