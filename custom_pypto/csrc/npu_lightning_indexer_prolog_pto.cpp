// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_prolog_pto: int8 queries, int8 keys in the cache and head weights of the lightning indexer.
#include <optional>
#include <string>

#include "aclnn_lightning_indexer_prolog_pto.h"
#include "arguments/int8.h"
#include "operator.h"

namespace custom_pypto {
namespace {

Results<3> check_lightning_indexer_prolog_pto(
    const Checks& checks, const at::Tensor& token_x, const at::Tensor& q_norm, const at::Tensor& q_norm_scale,
    const at::Tensor& wq_b, const at::Tensor& wq_b_scale, const at::Tensor& wk, const at::Tensor& weights_proj,
    const at::Tensor& ln_gamma_k, const at::Tensor& ln_beta_k, const at::Tensor& cos_idx_rope,
    const at::Tensor& sin_idx_rope, const at::Tensor& hadamard_q, const at::Tensor& hadamard_k,
    const at::Tensor& idx_k_cache, const at::Tensor& idx_k_scale_cache, const at::Tensor& idx_k_cache_index,
    double layernorm_epsilon_k, const std::optional<std::string>& layout_query,
    const std::optional<std::string>& layout_key, const std::string& rope_mode) {
  const std::string of_query = layout_query.value_or("TND"), of_key = layout_key.value_or("PA_BSND");
  checks.one_of("layout_query", of_query, {"TND", "BSND"});
  checks.one_of("layout_key", of_key, {"PA_BSND", "BSND", "TND"});
  checks.one_of("rope_mode", rope_mode, {"interleave", "half"});
  checks.epsilon("layernorm_epsilon_k", layernorm_epsilon_k);
  const auto tokens = [&](std::initializer_list<std::string_view> names) {
    SizeNames sizes = of_query == "TND" ? SizeNames{"T"} : SizeNames{"B", "S1"};
    sizes.append(names.begin(), names.end());
    return sizes;
  };
  const SizeNames scales = of_key == "TND"       ? SizeNames{"T2", "1"}
                           : of_key == "PA_BSND" ? SizeNames{"blocks", "block_size", "1"}
                                                 : SizeNames{"sequences", "S2", "1"};
  SizeNames keys = scales;
  keys.push_back("D");
  const ArgumentTable table(checks, {{"token_x", token_x, {at::kBFloat16, at::kHalf}, tokens({"h"})},
                                     {"q_norm", q_norm, {at::kChar}, tokens({"q_lora"})},
                                     {"q_norm_scale", q_norm_scale, {at::kFloat}, tokens({"1"})},
                                     {"wq_b", wq_b, {at::kChar}, {"q_lora", "N * D"}, Use::kMatrix},
                                     {"wq_b_scale", wq_b_scale, {at::kFloat}, {"N * D", "1"}},
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
  table.check_positive({"h", "q_lora", "N", "D", "R"});
  table.check_at_most("q_lora", kMaxProducts, ", whose products int32 can sum");
  table.check_equal("N * D", table["N"] * table["D"], "N of 'weights_proj' times D of 'wk'");
  table.check_rope("R", "D");
  return table.results({{"query", at::kChar, tokens({"N", "D"})},
                        {"query_scale", at::kHalf, tokens({"N", "1"})},
                        {"weights", at::kHalf, tokens({"N"})}});
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_lightning_indexer_prolog_pto>(
      m, "custom_pypto::npu_lightning_indexer_prolog_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerPrologPto, arguments...); });
}

}  // namespace
}  // namespace custom_pypto
