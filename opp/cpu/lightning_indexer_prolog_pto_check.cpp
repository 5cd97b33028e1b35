// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of the prolog of the lightning indexer: dtypes, ranks, sizes and attributes.
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "cpu/checks.h"
#include "cpu/lightning_indexer_prolog_pto.h"
#include "cpu/sequences.h"
#include "cpu/slots.h"

namespace opp {
namespace {

// Sums of that many products of int8 fit into int32.
constexpr int64_t kMaxDepth = (int64_t{1} << 31) / (128 * 128) - 1;

void check_attributes(const LightningIndexerPrologPto& call) {
  TORCH_CHECK(call.layout_query == "TND" || call.layout_query == "BSND", "layout_query must be TND or BSND, but is '",
              call.layout_query, "'");
  TORCH_CHECK(call.layout_key == "PA_BSND" || call.layout_key == "BSND" || call.layout_key == "TND",
              "layout_key must be PA_BSND, BSND or TND, but is '", call.layout_key, "'");
  check_rope_mode("rope_mode", call.rope_mode);
  check_finite("layernorm_epsilon_k", call.layernorm_epsilon_k);
}

void check_dtypes(const LightningIndexerPrologPto& call) {
  const auto dtype = call.token_x.scalar_type();
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "token_x must be bfloat16 or float16, but is ", dtype);
  const auto like_token_x = [=](const char* name, at::ScalarType actual) {
    check_dtype(name, actual, dtype, "token_x");
  };
  like_token_x("wk", call.wk.dtype);
  like_token_x("weights_proj", call.weights_proj.dtype);
  like_token_x("ln_gamma_k", call.ln_gamma_k.scalar_type());
  like_token_x("ln_beta_k", call.ln_beta_k.scalar_type());
  like_token_x("cos_idx_rope", call.cos_idx_rope.scalar_type());
  like_token_x("sin_idx_rope", call.sin_idx_rope.scalar_type());
  like_token_x("hadamard_q", call.hadamard_q.scalar_type());
  like_token_x("hadamard_k", call.hadamard_k.scalar_type());
  check_dtype("q_norm", call.q_norm.scalar_type(), at::kChar);
  check_dtype("q_norm_scale", call.q_norm_scale.scalar_type(), at::kFloat);
  check_dtype("wq_b", call.wq_b.dtype, at::kChar);
  check_dtype("wq_b_scale", call.wq_b_scale.scalar_type(), at::kFloat);
  check_dtype("idx_k_cache", call.idx_k_cache.scalar_type(), at::kChar);
  check_dtype("idx_k_scale_cache", call.idx_k_scale_cache.scalar_type(), at::kHalf);
  check_dtype("query", call.query.scalar_type(), at::kChar);
  check_dtype("query_scale", call.query_scale.scalar_type(), at::kHalf);
  check_dtype("weights", call.weights.scalar_type(), at::kHalf);
}

// The tensors that the sizes of all others follow from.
void check_sizes_given(const LightningIndexerPrologPto& call) {
  const bool packed = call.layout_query == "TND";
  check_rank("token_x", call.token_x, packed ? 2 : 3, packed ? "(T, h)" : "(B, S1, h)");
  check_rank("q_norm", call.q_norm, packed ? 2 : 3, packed ? "(T, q_lora)" : "(B, S1, q_lora)");
  check_rank("cos_idx_rope", call.cos_idx_rope, packed ? 2 : 3, packed ? "(T, R)" : "(B, S1, R)");
  check_at_least_1("token_x", "h", call.hidden());
  check_at_least_1("q_norm", "q_lora", call.q_lora());
  check_at_least_1("wk", "D", call.depth());
  check_at_least_1("weights_proj", "N", call.heads());
  TORCH_CHECK(call.q_lora() <= kMaxDepth, "q_norm must have a size q_lora of at most ", kMaxDepth,
              ", whose products int32 can sum, but it is ", call.q_lora());
  const int64_t rope = call.rope_depth();
  TORCH_CHECK(rope >= 2 && rope % 2 == 0 && rope <= call.depth(),
              "cos_idx_rope must have an even last size R from 2 to D = ", call.depth(), ", but has shape ",
              call.cos_idx_rope.sizes());
}

void check_weights(const LightningIndexerPrologPto& call) {
  const int64_t depth = call.depth();
  check_weight("wk", call.wk, call.hidden(), depth, "(h, D)");
  check_weight("weights_proj", call.weights_proj, call.hidden(), call.heads(), "(h, N)");
  check_weight("wq_b", call.wq_b, call.q_lora(), call.heads() * depth, "(q_lora, N * D)");
  check_sizes("wq_b_scale", call.wq_b_scale, {call.heads() * depth, 1}, "(N * D, 1)");
  check_sizes("ln_gamma_k", call.ln_gamma_k, {depth}, "(D)");
  check_sizes("ln_beta_k", call.ln_beta_k, {depth}, "(D)");
  check_sizes("hadamard_q", call.hadamard_q, {depth, depth}, "(D, D)");
  check_sizes("hadamard_k", call.hadamard_k, {depth, depth}, "(D, D)");
}

// The sizes of a tensor that has these for each token.
struct OfTokens {
  std::vector<int64_t> sizes;
  std::string dimensions;

  OfTokens(const LightningIndexerPrologPto& call, std::initializer_list<int64_t> of_token, const char* names)
      : sizes(call.token_x.sizes().vec()), dimensions(call.layout_query == "TND" ? "(T" : "(B, S1") {
    sizes.pop_back();
    sizes.insert(sizes.end(), of_token);
    dimensions += names + std::string(")");
  }
};

void check_tokens(const LightningIndexerPrologPto& call) {
  const auto check = [&](const char* name, const at::Tensor& tensor, std::initializer_list<int64_t> of_token,
                         const char* names) {
    const OfTokens expected(call, of_token, names);
    check_sizes(name, tensor, expected.sizes, expected.dimensions.c_str());
  };
  check("q_norm", call.q_norm, {call.q_lora()}, ", q_lora");
  check("q_norm_scale", call.q_norm_scale, {1}, ", 1");
  check("cos_idx_rope", call.cos_idx_rope, {call.rope_depth()}, ", R");
  check("sin_idx_rope", call.sin_idx_rope, {call.rope_depth()}, ", R");
  check("query", call.query, {call.heads(), call.depth()}, ", N, D");
  check("query_scale", call.query_scale, {call.heads(), 1}, ", N, 1");
  check("weights", call.weights, {call.heads()}, ", N");
  const OfTokens slots(call, {}, "");
  check_slots("idx_k_cache_index", call.idx_k_cache_index, slots.sizes, slots.dimensions.c_str());
}

void check_caches(const LightningIndexerPrologPto& call) {
  const bool packed = call.layout_key == "TND";
  const std::string tokens = packed ? "(T2" : call.layout_key == "BSND" ? "(B, S2" : "(block_num, block_size";
  const std::string keys = tokens + ", 1, D)";
  check_rank("idx_k_cache", call.idx_k_cache, packed ? 3 : 4, keys.c_str());
  auto expected = call.idx_k_cache.sizes().vec();
  expected.end()[-2] = 1;
  expected.back() = call.depth();
  check_sizes("idx_k_cache", call.idx_k_cache, expected, keys.c_str());
  expected.pop_back();
  check_sizes("idx_k_scale_cache", call.idx_k_scale_cache, expected, (tokens + ", 1)").c_str());
}

}  // namespace

void check(const LightningIndexerPrologPto& call) {
  check_attributes(call);
  check_dtypes(call);
  check_sizes_given(call);
  check_weights(call);
  check_tokens(call);
  check_caches(call);
}

}  // namespace opp
