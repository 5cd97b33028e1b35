// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_prolog_pto: int8 queries, int8 keys in the cache and head weights of the lightning indexer.
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "aclnn_lightning_indexer_prolog_pto.h"
#include "argument_table.h"
#include "ops_common.h"

namespace custom_pypto {
namespace {

using at::Tensor;
using Layout = std::optional<std::string>;  // None is the default
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

const std::string kDefaultQueryLayout = "TND";
const std::string kDefaultKeyLayout = "PA_BSND";

SizeNames tokens_and(const std::string& layout_query, std::initializer_list<std::string_view> names) {
  SizeNames sizes = layout_query == "TND" ? SizeNames{"T"} : SizeNames{"B", "S1"};
  sizes.append(names.begin(), names.end());
  return sizes;
}

// The dimensions of the scale cache; the key cache has D too.
SizeNames cache_sizes(const std::string& layout_key) {
  if (layout_key == "TND") {
    return {"T2", "1"};
  }
  return layout_key == "PA_BSND" ? SizeNames{"blocks", "block_size", "1"} : SizeNames{"B of the cache", "S2", "1"};
}

Outputs prolog_meta(const Tensor& token_x, const Tensor& q_norm, const Tensor& q_norm_scale, const Tensor& wq_b,
                    const Tensor& wq_b_scale, const Tensor& wk, const Tensor& weights_proj, const Tensor& ln_gamma_k,
                    const Tensor& ln_beta_k, const Tensor& cos_idx_rope, const Tensor& sin_idx_rope,
                    const Tensor& hadamard_q, const Tensor& hadamard_k, const Tensor& idx_k_cache,
                    const Tensor& idx_k_scale_cache, const Tensor& idx_k_cache_index, double layernorm_epsilon_k,
                    const Layout& layout_query, const Layout& layout_key, const std::string& rope_mode) {
  const Checks checks("custom_pypto::npu_lightning_indexer_prolog_pto");
  const std::string& query_layout = layout_query.has_value() ? *layout_query : kDefaultQueryLayout;
  const std::string& key_layout = layout_key.has_value() ? *layout_key : kDefaultKeyLayout;
  checks.one_of("layout_query", query_layout, {"TND", "BSND"});
  checks.one_of("layout_key", key_layout, {"PA_BSND", "BSND", "TND"});
  checks.one_of("rope_mode", rope_mode, {"interleave", "half"});
  checks.epsilon("layernorm_epsilon_k", layernorm_epsilon_k);
  const auto tokens = [&](std::initializer_list<std::string_view> names) { return tokens_and(query_layout, names); };
  const SizeNames scales = cache_sizes(key_layout);
  SizeNames keys = scales;
  keys.push_back("D");
  const Sizes sizes(checks, {{"token_x", token_x, {at::kBFloat16, at::kHalf}, tokens({"h"})},
                             {"q_norm", q_norm, {at::kChar}, tokens({"q_lora"})},
                             {"q_norm_scale", q_norm_scale, {at::kFloat}, tokens({"1"})},
                             {"wq_b", wq_b, {at::kChar}, {"q_lora", "N*D"}, Use::kMatrix},
                             {"wq_b_scale", wq_b_scale, {at::kFloat}, {"N*D", "1"}},
                             {"wk", wk, {}, {"h", "D"}, Use::kMatrix},
                             {"weights_proj", weights_proj, {}, {"h", "N"}, Use::kMatrix},
                             {"ln_gamma_k", ln_gamma_k, {}, {"D"}},
                             {"ln_beta_k", ln_beta_k, {}, {"D"}},
                             {"cos_idx_rope", cos_idx_rope, {}, tokens({"R"})},
                             {"sin_idx_rope", sin_idx_rope, {}, tokens({"R"})},
                             {"hadamard_q", hadamard_q, {}, {"D", "D"}},
                             {"hadamard_k", hadamard_k, {}, {"D", "D"}},
                             {"idx_k_cache", idx_k_cache, {at::kChar}, keys, Use::kWritten},
                             {"idx_k_scale_cache", idx_k_scale_cache, {at::kHalf}, scales, Use::kWritten},
                             {"idx_k_cache_index", idx_k_cache_index, {at::kLong, at::kInt}, tokens({})}});
  sizes.check_positive({"h", "q_lora", "N", "D", "R"});
  sizes.check_equal("N*D", sizes["N"] * sizes["D"], "N of 'weights_proj' times D of 'wk'");
  sizes.check_rope("R", "D");

  std::vector<c10::SymInt> shape(token_x.sym_sizes().begin(), token_x.sym_sizes().end() - 1);
  shape.push_back(sizes["N"]);
  const Tensor weights = at::empty_symint(shape, token_x.options().dtype(at::kHalf));
  shape.push_back(1);
  const Tensor query_scale = at::empty_symint(shape, token_x.options().dtype(at::kHalf));
  shape.back() = sizes["D"];
  return {at::empty_symint(shape, token_x.options().dtype(at::kChar)), query_scale, weights};
}

Outputs prolog_npu(const Tensor& token_x, const Tensor& q_norm, const Tensor& q_norm_scale, const Tensor& wq_b,
                   const Tensor& wq_b_scale, const Tensor& wk, const Tensor& weights_proj, const Tensor& ln_gamma_k,
                   const Tensor& ln_beta_k, const Tensor& cos_idx_rope, const Tensor& sin_idx_rope,
                   const Tensor& hadamard_q, const Tensor& hadamard_k, const Tensor& idx_k_cache,
                   const Tensor& idx_k_scale_cache, const Tensor& idx_k_cache_index, double layernorm_epsilon_k,
                   const Layout& layout_query, const Layout& layout_key, const std::string& rope_mode) {
  const auto [query, query_scale, weights] =
      prolog_meta(token_x, q_norm, q_norm_scale, wq_b, wq_b_scale, wk, weights_proj, ln_gamma_k, ln_beta_k,
                  cos_idx_rope, sin_idx_rope, hadamard_q, hadamard_k, idx_k_cache, idx_k_scale_cache, idx_k_cache_index,
                  layernorm_epsilon_k, layout_query, layout_key, rope_mode);
  if (query.numel() != 0) {
    EXEC_NPU_CMD(aclnnLightningIndexerPrologPto, token_x, q_norm, q_norm_scale, wq_b, wq_b_scale, wk, weights_proj,
                 ln_gamma_k, ln_beta_k, cos_idx_rope, sin_idx_rope, hadamard_q, hadamard_k, idx_k_cache,
                 idx_k_scale_cache, idx_k_cache_index, layernorm_epsilon_k, layout_query.value_or(kDefaultQueryLayout),
                 layout_key.value_or(kDefaultKeyLayout), rope_mode, query, query_scale, weights);
  }
  return {query, query_scale, weights};
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("npu_lightning_indexer_prolog_pto", &prolog_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("npu_lightning_indexer_prolog_pto", &prolog_meta); }

}  // namespace
}  // namespace custom_pypto
