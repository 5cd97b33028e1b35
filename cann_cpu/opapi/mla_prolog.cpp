// SPDX-License-Identifier: Apache-2.0
// What comes before the attention of MLA: projections of the tokens to queries, keys and values, in the latent space,
// their norms and rotary embeddings, and the writing of caches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>

#include "checks.h"
#include "normalization.h"
#include "pages.h"
#include "product.h"
#include "quantization.h"
#include "rotary.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kLatentHead = 512;            // of keys and values
constexpr int64_t kTurnedHead = 64;             // of queries and keys
constexpr int64_t kScaledTile = 128;            // numbers that share a scale
constexpr int64_t kTiledRow = 656;              // bytes: int8 numbers, bfloat16 turned part, scales
constexpr int64_t kConvertedWeights = 1 << 19;  // converted at a time
constexpr int64_t kProjectedQueries = 4 << 20;

int64_t columns_of(const StoredTensor& weight) { return weight.shape.at(1); }
int64_t depth_of(const StoredTensor& weight) { return weight.shape.at(0); }

// Some columns of a weight, in int8 or float.
at::Tensor columns_in(at::ScalarType dtype, const StoredTensor& weight, int64_t first, int64_t count) {
  const at::Tensor& stored = weight.tensor;
  if (weight.format == ACL_FORMAT_ND) return stored.narrow(1, first, count).to(dtype);
  const int64_t width = stored.size(-1);  // of a block
  const auto blocks = stored.narrow(0, first / width, (count + width - 1) / width).flatten(1, 2);
  const auto rows = at::empty({blocks.size(1), blocks.size(0), width}, dtype);
  rows.copy_(blocks.transpose(0, 1));
  return rows.flatten(1, 2).narrow(0, 0, depth_of(weight)).narrow(1, 0, count);
}

// x (rows, depth) times a weight, in float; products of int8 are exact, and multiplied by the scales of rows and
// columns.
at::Tensor projection(In x, const StoredTensor& weight, OptionalIn row_scale, OptionalIn column_scale) {
  const bool is_exact = x.scalar_type() == at::kChar;
  const auto dtype = is_exact ? at::kChar : at::kFloat;
  const auto factor = x.to(dtype);
  auto result = at::empty({x.size(0), columns_of(weight)}, at::kFloat);
  const int64_t step = std::max<int64_t>(kConvertedWeights / depth_of(weight) / 64, 1) * 64;
  by_steps(columns_of(weight), step, [&](int64_t first, int64_t count) {
    const auto block = columns_in(dtype, weight, first, count);
    result.narrow(1, first, count).copy_(is_exact ? integer_product(factor, block) : at::matmul(factor, block));
  });
  if (!is_exact) return result;
  return result.mul_(*column_scale).mul_(*row_scale);
}

at::Tensor rms_normalized(In x, In gamma, double epsilon, double scale) {
  const auto result = std::get<0>(rms_norm(x, gamma, epsilon));
  return scale == 1 ? result : result * scale;
}

// To int8 by row. With alpha, that part of the largest number becomes 127, and what is above it saturates.
Dynamic int8_by_row(In x, OptionalIn alpha = std::nullopt) {
  if (!alpha.has_value()) return dynamically_quantized(x, at::kChar);
  const auto scale = x.abs().amax({-1}, /*keepdim=*/true).mul_(*alpha).div_(127);
  return {saturated(x / scale, at::kChar).clamp_min_(-127), scale.squeeze(-1), {}};
}

enum class CacheMode { kPaged, kPagedNz, kBlocks, kBlocksNz, kTokens };

struct Prolog {
  In token_x;
  const StoredTensor &weight_dq, &weight_uq_qr;
  In weight_uk;
  const StoredTensor& weight_dkv_kr;
  In gamma_cq, gamma_ckv, rope_sin, rope_cos;
  In kv_cache, kr_cache;
  OptionalIn cache_index, dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr,
      quant_scale_ckv, quant_scale_ckr, smooth_scales_cq, actual_seq_len, k_nope_clip_alpha;
  double epsilon_cq, epsilon_ckv;
  Text cache_mode;
  int64_t weight_quant_mode, kv_cache_quant_mode, query_quant_mode, ckvkr_repo_mode, quant_scale_repo_mode, tile_size;
  double qc_qr_scale, kc_scale;
  In query, query_rope;
  OptionalIn dequant_scale_q_nope, query_norm, dequant_scale_q_norm;

  int64_t tokens() const { return token_x.numel() / depth_of(weight_dq); }
  int64_t heads() const { return weight_uk.size(0); }
  int64_t head_size() const { return weight_uk.size(1); }
  bool is_tiled() const { return kv_cache_quant_mode == 3; }
  bool is_merged() const { return token_x.dim() == 2; }

  CacheMode mode() const {
    if (cache_mode == "PA_BSND") return CacheMode::kPaged;
    if (cache_mode == "PA_NZ") return CacheMode::kPagedNz;
    if (cache_mode == "PA_BLK_BSND") return CacheMode::kBlocks;
    if (cache_mode == "PA_BLK_NZ") return CacheMode::kBlocksNz;
    const char* whole = is_merged() ? "TND" : "BSND";
    TORCH_CHECK(cache_mode == whole, "cache_mode is \"", cache_mode,
                "\"; expected PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ or ", whole);
    return CacheMode::kTokens;
  }

  static void check_one_of(const char* name, int64_t value, std::initializer_list<int64_t> expected) {
    TORCH_CHECK(std::ranges::find(expected, value) != expected.end(), name, " is ", value, "; expected ",
                at::IntArrayRef(expected));
  }
  static void check_given(const char* name, OptionalIn tensor, bool is_expected, at::IntArrayRef shape) {
    TORCH_CHECK(tensor.has_value() == is_expected, name, is_expected ? " is null" : " is given",
                "; these quantisation modes ", is_expected ? "need it" : "do not take it");
    if (is_expected) check_shape(name, *tensor, shape);
  }
  static void check_weight(const char* name, const StoredTensor& weight, at::IntArrayRef expected) {
    TORCH_CHECK(at::IntArrayRef(weight.shape) == expected, name, " has shape ", at::IntArrayRef(weight.shape),
                "; expected ", expected);
  }

  void check_modes() const {
    constexpr int64_t kServed[][3] = {{0, 0, 0}, {1, 0, 0}, {1, 2, 0}, {1, 3, 0}, {2, 0, 0}, {2, 1, 1}, {2, 3, 0}};
    const bool is_served = std::ranges::any_of(kServed, [&](const auto& served) {
      return served[0] == weight_quant_mode && served[1] == kv_cache_quant_mode && served[2] == query_quant_mode;
    });
    TORCH_CHECK(is_served, "weight_quant_mode ", weight_quant_mode, ", kv_cache_quant_mode ", kv_cache_quant_mode,
                " and query_quant_mode ", query_quant_mode, " are not supported together");
    check_range("ckvkr_repo_mode", ckvkr_repo_mode, is_tiled(), is_tiled());
    check_range("quant_scale_repo_mode", quant_scale_repo_mode, is_tiled(), is_tiled());
    if (is_tiled()) check_range("tile_size", tile_size, kScaledTile, kScaledTile);
    const auto check_dtype = [](const char* name, at::ScalarType dtype, bool is_quantized) {
      const auto expected = is_quantized ? at::kChar : at::kBFloat16;
      TORCH_CHECK(dtype == expected, name, " has dtype ", dtype, "; these quantisation modes expect ", expected);
    };
    check_dtype("token_x", token_x.scalar_type(), weight_quant_mode == 2);
    check_dtype("weight_uq_qr", weight_uq_qr.tensor.scalar_type(), weight_quant_mode != 0);
    check_dtype("kv_cache", kv_cache.scalar_type(), kv_cache_quant_mode != 0);
    check_dtype("kr_cache", kr_cache.scalar_type(), kv_cache_quant_mode == 2);
    check_dtype("query", query.scalar_type(), query_quant_mode != 0);
    if (query_norm.has_value()) check_dtype("query_norm", query_norm->scalar_type(), weight_quant_mode != 0);
  }

  void check_caches() const {
    const int64_t row = is_tiled() ? kTiledRow : kLatentHead;
    const auto check_cache = [&](const char* name, In cache, int64_t size) {
      check_contiguous(name, cache);
      if (mode() == CacheMode::kTokens) {
        auto expected = token_x.sizes().vec();
        expected.back() = 1;
        expected.push_back(size);
        check_shape(name, cache, expected);
        return;
      }
      check_rank(name, cache, 4);
      check_shape(name, cache, {cache.size(0), cache.size(1), 1, size});
    };
    check_cache("kv_cache", kv_cache, row);
    if (ckvkr_repo_mode == 0) check_cache("kr_cache", kr_cache, kTurnedHead);
    const bool is_nz = mode() == CacheMode::kPagedNz || mode() == CacheMode::kBlocksNz;
    TORCH_CHECK(!is_nz || !is_tiled(), "cache_mode is ", cache_mode, "; kv_cache_quant_mode 3 does not support it");
    const bool is_indexed = mode() != CacheMode::kTokens;
    TORCH_CHECK(cache_index.has_value() == is_indexed, "cache_index is ", is_indexed ? "null" : "given",
                "; cache_mode is ", cache_mode);
    if (!is_indexed) return;
    if (ckvkr_repo_mode == 0) {
      check_shape("kr_cache", kr_cache, {kv_cache.size(0), kv_cache.size(1), 1, kTurnedHead});
    }
    const int64_t block = kv_cache.size(1);
    TORCH_CHECK(kv_cache.numel() == 0 || (block % 16 == 0 && block <= 1024), "kv_cache has blocks of ", block,
                " tokens; expected a multiple of 16 up to 1024");
    const bool by_block = mode() == CacheMode::kBlocks || mode() == CacheMode::kBlocksNz;
    TORCH_CHECK(actual_seq_len.has_value() == (by_block && is_merged()), "actual_seq_len is ",
                actual_seq_len.has_value() ? "given" : "null", "; it belongs to cache_mode PA_BLK_BSND or PA_BLK_NZ ",
                "with token_x of 2 dimensions");
    if (by_block && is_merged()) {
      check_rank("cache_index", *cache_index, 1);
    } else if (is_merged()) {
      check_shape("cache_index", *cache_index, {tokens()});
    } else {
      const int64_t each = token_x.size(1);
      check_shape("cache_index", *cache_index,
                  {token_x.size(0), by_block && block > 0 ? (each + block - 1) / block : each});
    }
  }

  void check() const {
    TORCH_CHECK(token_x.dim() == 2 || token_x.dim() == 3, "token_x has shape ", token_x.sizes(),
                "; expected 2 or 3 dimensions");
    check_rank("weight_uk", weight_uk, 3);
    check_contiguous("token_x", token_x);
    const int64_t hidden = token_x.size(-1);
    check_one_of("token_x's last dimension", hidden, {1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192});
    check_rank("rmsnorm_gamma_cq", gamma_cq, 1);
    const int64_t rank = gamma_cq.size(0);
    check_one_of("the size of rmsnorm_gamma_cq", rank, {1536, 2048});
    check_one_of("weight_uk's number of heads", heads(), {1, 2, 4, 8, 16, 32, 64, 128});
    check_one_of("weight_uk's head size", head_size(), {128, 192});
    check_shape("weight_uk", weight_uk, {heads(), head_size(), kLatentHead});
    check_weight("weight_dq", weight_dq, {hidden, rank});
    const int64_t projected = heads() * (head_size() + kTurnedHead);
    check_weight("weight_uq_qr", weight_uq_qr, {rank, projected});
    check_weight("weight_dkv_kr", weight_dkv_kr, {hidden, kLatentHead + kTurnedHead});
    check_shape("rmsnorm_gamma_ckv", gamma_ckv, {kLatentHead});
    auto turned = token_x.sizes().vec();
    turned.back() = kTurnedHead;
    check_shape("rope_sin", rope_sin, turned);
    check_shape("rope_cos", rope_cos, turned);
    check_modes();
    check_caches();
    const bool is_full = weight_quant_mode == 2, is_quantized = weight_quant_mode != 0;
    check_given("dequant_scale_x", dequant_scale_x, is_full, {tokens(), 1});
    check_given("dequant_scale_w_dq", dequant_scale_w_dq, is_full, {1, rank});
    check_given("dequant_scale_w_uq_qr", dequant_scale_w_uq_qr, is_quantized, {1, projected});
    check_given("dequant_scale_w_dkv_kr", dequant_scale_w_dkv_kr, is_full, {1, kLatentHead + kTurnedHead});
    const bool by_channel = kv_cache_quant_mode == 2, by_tensor = kv_cache_quant_mode == 1;
    const bool is_one = by_tensor && quant_scale_ckv.has_value() && quant_scale_ckv->numel() == 1;
    if (!is_one) check_given("quant_scale_ckv", quant_scale_ckv, by_channel || by_tensor, {1, kLatentHead});
    check_given("quant_scale_ckr", quant_scale_ckr, by_channel, {1, kTurnedHead});
    if (smooth_scales_cq.has_value()) check_given("smooth_scales_cq", smooth_scales_cq, is_quantized, {1, rank});
    if (k_nope_clip_alpha.has_value()) check_given("k_nope_clip_alpha", k_nope_clip_alpha, is_tiled(), {1});
    auto expected = turned;
    expected.back() = heads();
    expected.push_back(kLatentHead);
    check_shape("query", query, expected);
    expected.back() = kTurnedHead;
    check_shape("query_rope", query_rope, expected);
    if (query_quant_mode != 0) check_given("dequant_scale_q_nope", dequant_scale_q_nope, true, {tokens(), heads(), 1});
    if (!query_norm.has_value()) return;
    turned.back() = rank;
    check_shape("query_norm", *query_norm, turned);
    check_given("dequant_scale_q_norm", dequant_scale_q_norm, is_quantized, {tokens(), 1});
  }

  // Each token's place among the tokens of the caches.
  at::Tensor places() const {
    if (mode() == CacheMode::kTokens) return at::arange(tokens(), at::kLong);
    const int64_t block = kv_cache.size(1);
    if (mode() == CacheMode::kPaged || mode() == CacheMode::kPagedNz) {
      check_values("cache_index", *cache_index, 0, kv_cache.size(0) * block - 1);
      return cache_index->flatten();
    }
    check_values("cache_index", *cache_index, 0, kv_cache.size(0) - 1);
    const auto index = cache_index->contiguous();
    const int64_t* blocks = index.const_data_ptr<int64_t>();
    const auto result = at::empty({tokens()}, at::kLong);
    int64_t *next = result.mutable_data_ptr<int64_t>(), used = 0;
    const auto add_sequence = [&](int64_t length) {
      for (int64_t i = 0; i < length; ++i) *next++ = blocks[used + i / block] * block + i % block;
      used += (length + block - 1) / block;
    };
    if (!is_merged()) {
      for (int64_t i = 0; i < token_x.size(0); ++i) add_sequence(token_x.size(1));
      return result;
    }
    const auto ends = actual_seq_len->to(at::kLong).contiguous();
    int64_t begin = 0, needed = 0;
    for (int64_t i = 0; i < ends.numel(); ++i) {
      const int64_t end = ends.const_data_ptr<int64_t>()[i];
      const bool is_last = i + 1 == ends.numel();
      TORCH_CHECK(end >= begin && (is_last ? end == tokens() : end <= tokens()), "actual_seq_len[", i, "] is ", end,
                  "; expected ", is_last ? tokens() : begin, " to ", tokens());
      needed += (end - begin + block - 1) / block;
      begin = end;
    }
    TORCH_CHECK(needed <= cache_index->numel(), "cache_index has ", cache_index->numel(), " blocks; the tokens need ",
                needed);
    begin = 0;
    for (int64_t i = 0; i < ends.numel(); ++i) {
      add_sequence(ends.const_data_ptr<int64_t>()[i] - begin);
      begin = ends.const_data_ptr<int64_t>()[i];
    }
    return result;
  }

  // Writes rows (tokens, size) of the cache's dtype.
  void write(In cache, In rows, In places) const {
    const int64_t size = cache.size(-1), width = 32 / cache.element_size();
    const bool is_nz = mode() == CacheMode::kPagedNz || mode() == CacheMode::kBlocksNz;
    const auto view = is_nz ? cache.view({cache.size(0), size / width, cache.size(1), width}).transpose(1, 2)
                            : cache.view({-1, 1, size});
    scatter(Pages(view), rows, places);
  }

  void write_keys(In x, int64_t first, In sine, In cosine, In all_places) const {
    const int64_t count = x.size(0);
    const auto scale = of_tokens(dequant_scale_x, first, count);
    const auto both = projection(x, weight_dkv_kr, scale, dequant_scale_w_dkv_kr);
    const auto latent = rms_normalized(both.narrow(1, 0, kLatentHead), gamma_ckv, epsilon_ckv, kc_scale);
    const auto turned = rotated(both.narrow(1, kLatentHead, kTurnedHead), cosine, sine, Pairs::InterleaveHalf);
    if (kv_cache.numel() == 0) return;
    const auto places = all_places.narrow(0, first, count);
    switch (kv_cache_quant_mode) {
      case 0:
        write(kv_cache, latent.to(at::kBFloat16), places);
        break;
      case 3: {
        const auto tiles = int8_by_row(latent.unflatten(1, {-1, kScaledTile}), k_nope_clip_alpha);
        const auto bytes = [](const at::Tensor& tensor) { return tensor.contiguous().view(at::kChar); };
        write(kv_cache, at::cat({tiles.values.flatten(1), bytes(turned.to(at::kBFloat16)), bytes(tiles.scale)}, 1),
              places);
        return;
      }
      default:
        write(kv_cache, quantized(latent, *quant_scale_ckv, std::nullopt, at::kChar), places);
    }
    if (kv_cache_quant_mode == 2) {
      write(kr_cache, quantized(turned, *quant_scale_ckr, std::nullopt, at::kChar), places);
    } else {
      write(kr_cache, turned.to(at::kBFloat16), places);
    }
  }

  static std::optional<at::Tensor> of_tokens(OptionalIn tensor, int64_t first, int64_t count) {
    return tensor.has_value() ? std::optional(tensor->view({-1, tensor->size(-1)}).narrow(0, first, count))
                              : std::nullopt;
  }

  void write_queries(In x, int64_t first, In sine, In cosine) const {
    const int64_t count = x.size(0);
    const auto rows = [&](In tensor, std::vector<int64_t> shape) {
      shape.insert(shape.begin(), tokens());
      return tensor.view(shape).narrow(0, first, count);
    };
    auto latent = rms_normalized(projection(x, weight_dq, of_tokens(dequant_scale_x, first, count), dequant_scale_w_dq),
                                 gamma_cq, epsilon_cq, qc_qr_scale);
    std::optional<at::Tensor> scale;
    if (weight_quant_mode != 0) {
      const auto rounded = int8_by_row(smooth_scales_cq.has_value() ? latent * *smooth_scales_cq : latent);
      latent = rounded.values;
      scale = rounded.scale.unsqueeze(1);
    }
    if (query_norm.has_value()) {
      rows(*query_norm, {latent.size(1)}).copy_(latent);
      if (scale.has_value()) rows(*dequant_scale_q_norm, {1}).copy_(*scale);
    }
    const auto both = projection(latent, weight_uq_qr, scale, dequant_scale_w_uq_qr).unflatten(1, {heads(), -1});
    const auto turned = both.narrow(2, head_size(), kTurnedHead);
    rows(query_rope, {heads(), kTurnedHead})
        .copy_(rotated(turned, cosine.unsqueeze(1), sine.unsqueeze(1), Pairs::InterleaveHalf));
    const auto out = rows(query, {heads(), kLatentHead});
    const int64_t step =
        std::max<int64_t>(kConvertedWeights / (kLatentHead * std::max(count, head_size())), 1);  // heads
    for (int64_t head = 0; head < heads(); head += step) {
      const int64_t some = std::min(step, heads() - head);
      const auto q = both.narrow(1, head, some).narrow(2, 0, head_size()).transpose(0, 1);
      const auto product = at::bmm(q, weight_uk.narrow(0, head, some).to(at::kFloat)).transpose(0, 1);
      if (query_quant_mode == 0) {
        out.narrow(1, head, some).copy_(product);
        continue;
      }
      const auto rounded = int8_by_row(product);
      out.narrow(1, head, some).copy_(rounded.values);
      rows(*dequant_scale_q_nope, {heads(), 1}).narrow(1, head, some).copy_(rounded.scale.unsqueeze(2));
    }
  }

  void run() const {
    if (tokens() == 0) return;
    const auto all_places = kv_cache.numel() > 0 ? places() : at::Tensor();
    const auto x = token_x.view({tokens(), -1});
    const int64_t widest = std::max(columns_of(weight_uq_qr), x.size(1));
    const int64_t step = std::clamp<int64_t>(kProjectedQueries / widest, 1, tokens());
    for (int64_t first = 0; first < tokens(); first += step) {
      const int64_t count = std::min(step, tokens() - first);
      const auto part = x.narrow(0, first, count);
      const auto sine = rope_sin.reshape({tokens(), -1}).narrow(0, first, count);
      const auto cosine = rope_cos.reshape({tokens(), -1}).narrow(0, first, count);
      write_keys(part, first, sine, cosine, all_places);
      write_queries(part, first, sine, cosine);
    }
  }
};

}  // namespace

// The quantisation of the second version shows in the dtypes.
ACLNN_TYPED_CHECKED(
    MlaPrologV2WeightNz,
    "token_x, weight_uq_qr, kv_cache, kr_cache, query: bfloat16 int8; weight_dq, weight_dkv_kr: as token_x; weight_uk, "
    "rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos, query_rope: bfloat16; cache_index: int64; "
    "dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, "
    "quant_scale_ckr, smooth_scales_cq, dequant_scale_q_nope: float32",
    [](Phase phase, In token_x, const StoredTensor& weight_dq, const StoredTensor& weight_uq_qr, In weight_uk,
       const StoredTensor& weight_dkv_kr, In rmsnorm_gamma_cq, In rmsnorm_gamma_ckv, In rope_sin, In rope_cos,
       In cache_index, InOut kv_cache, InOut kr_cache, OptionalIn dequant_scale_x, OptionalIn dequant_scale_w_dq,
       OptionalIn dequant_scale_w_uq_qr, OptionalIn dequant_scale_w_dkv_kr, OptionalIn quant_scale_ckv,
       OptionalIn quant_scale_ckr, OptionalIn smooth_scales_cq, double rmsnorm_epsilon_cq, double rmsnorm_epsilon_ckv,
       Text cache_mode, Out query, Out query_rope, OptionalOut dequant_scale_q_nope) {
      TORCH_CHECK(cache_mode == "PA_BSND" || cache_mode == "PA_NZ", "cache_mode is \"", cache_mode,
                  "\"; expected PA_BSND or PA_NZ");
      const bool is_full = token_x.scalar_type() == at::kChar;
      const int64_t weight_mode = is_full ? 2 : weight_uq_qr.tensor.scalar_type() == at::kChar;
      const int64_t cache = kv_cache.scalar_type() != at::kChar ? 0 : is_full ? 1 : 2;
      const bool quantizes_query = query.scalar_type() == at::kChar;
      check_or_run(
          phase, Prolog(token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
                        rope_sin, rope_cos, kv_cache, kr_cache, cache_index, dequant_scale_x, dequant_scale_w_dq,
                        dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, quant_scale_ckr,
                        smooth_scales_cq, std::nullopt, std::nullopt, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
                        cache_mode, weight_mode, cache, quantizes_query, 0, 0, kScaledTile, 1, 1, query, query_rope,
                        dequant_scale_q_nope, std::nullopt, std::nullopt));
    });

ACLNN_TYPED_CHECKED(
    MlaPrologV3WeightNz,
    "token_x, weight_uq_qr, kv_cache, kr_cache, query, query_norm: bfloat16 int8; weight_dq, weight_dkv_kr: as "
    "token_x; "
    "weight_uk, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos, query_rope: bfloat16; cache_index: int64; "
    "actual_seq_len: int32 int64; dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, "
    "quant_scale_ckv, quant_scale_ckr, smooth_scales_cq, k_nope_clip_alpha, dequant_scale_q_nope, "
    "dequant_scale_q_norm: float32",
    [](Phase phase, In token_x, const StoredTensor& weight_dq, const StoredTensor& weight_uq_qr, In weight_uk,
       const StoredTensor& weight_dkv_kr, In rmsnorm_gamma_cq, In rmsnorm_gamma_ckv, In rope_sin, In rope_cos,
       InOut kv_cache, InOut kr_cache, OptionalIn cache_index, OptionalIn dequant_scale_x,
       OptionalIn dequant_scale_w_dq, OptionalIn dequant_scale_w_uq_qr, OptionalIn dequant_scale_w_dkv_kr,
       OptionalIn quant_scale_ckv, OptionalIn quant_scale_ckr, OptionalIn smooth_scales_cq, OptionalIn actual_seq_len,
       OptionalIn k_nope_clip_alpha, double rmsnorm_epsilon_cq, double rmsnorm_epsilon_ckv, Text cache_mode,
       int64_t weight_quant_mode, int64_t kv_cache_quant_mode, int64_t query_quant_mode, int64_t ckvkr_repo_mode,
       int64_t quant_scale_repo_mode, int64_t tile_size, double qc_qr_scale, double kc_scale, Out query, Out query_rope,
       OptionalOut dequant_scale_q_nope, OptionalOut query_norm, OptionalOut dequant_scale_q_norm) {
      check_or_run(
          phase, Prolog(token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
                        rope_sin, rope_cos, kv_cache, kr_cache, cache_index, dequant_scale_x, dequant_scale_w_dq,
                        dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, quant_scale_ckr,
                        smooth_scales_cq, actual_seq_len, k_nope_clip_alpha, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
                        cache_mode, weight_quant_mode, kv_cache_quant_mode, query_quant_mode, ckvkr_repo_mode,
                        quant_scale_repo_mode, tile_size, qc_qr_scale, kc_scale, query, query_rope,
                        dequant_scale_q_nope, query_norm, dequant_scale_q_norm));
    });
