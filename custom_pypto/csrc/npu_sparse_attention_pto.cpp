// SPDX-License-Identifier: Apache-2.0
// npu_sparse_attention_pto: DeepSeek's sparse attention layer, from hidden states to what the heads read.
#include <c10/util/StringUtil.h>
#include <cmath>
#include <optional>
#include <string>

#include "aclnn_sparse_attention_pto.h"
#include "operator.h"

namespace custom_pypto {
namespace {

Results<1> check_sparse_attention_pto(
    const Checks& checks, const at::Tensor& x, const at::Tensor& w_dq, const at::Tensor& w_uq_qr,
    const at::Tensor& w_uk, const at::Tensor& w_dkv_kr, const at::Tensor& gamma_cq, const at::Tensor& gamma_ckv,
    const at::Tensor& sin, const at::Tensor& cos, const at::Tensor& cache_index, const at::Tensor& kv_cache,
    const at::Tensor& kr_cache, const at::Tensor& block_table, const at::Tensor& act_seqs, const at::Tensor& w_idx_qb,
    const at::Tensor& w_idx_k, const at::Tensor& w_idx_proj, const at::Tensor& in_gamma_k, const at::Tensor& in_beta_k,
    const at::Tensor& index_k_cache, int64_t sparse_count, const std::optional<double>& softmax_scale,
    double rms_norm_eps, double layer_norm_eps, const std::string& rope_mode, const std::string& indexer_rope_mode) {
  checks.at_least("sparse_count", sparse_count, 1);
  if (softmax_scale.has_value() && !(std::isfinite(*softmax_scale) && *softmax_scale > 0)) {
    checks.reject("softmax_scale", "be None or a finite number greater than 0", c10::str("is ", *softmax_scale));
  }
  checks.epsilon("rms_norm_eps", rms_norm_eps);
  checks.epsilon("layer_norm_eps", layer_norm_eps);
  checks.one_of("rope_mode", rope_mode, {"interleave", "half"});
  checks.one_of("indexer_rope_mode", indexer_rope_mode, {"interleave", "half"});
  const ArgumentTable table(checks,
                            {{"x", x, {at::kBFloat16, at::kHalf}, {"B", "S1", "h"}},
                             {"w_dq", w_dq, {}, {"h", "q_lora"}, Use::kMatrix},
                             {"w_uq_qr", w_uq_qr, {}, {"q_lora", "N * (Dn + R)"}, Use::kMatrix},
                             {"w_uk", w_uk, {}, {"N", "Dn", "Dkv"}},
                             {"w_dkv_kr", w_dkv_kr, {}, {"h", "Dkv + R"}, Use::kMatrix},
                             {"gamma_cq", gamma_cq, {}, {"q_lora"}},
                             {"gamma_ckv", gamma_ckv, {}, {"Dkv"}},
                             {"sin", sin, {}, {"B", "S1", "R"}},
                             {"cos", cos, {}, {"B", "S1", "R"}},
                             {"cache_index", cache_index, {at::kInt, at::kLong}, {"B", "S1"}},
                             {"kv_cache", kv_cache, {}, {"blocks", "block_size", "1", "Dkv"}, Use::kWritten},
                             {"kr_cache", kr_cache, {}, {"blocks", "block_size", "1", "R"}, Use::kWritten},
                             {"block_table", block_table, {at::kInt}, {"B", "blocks per sequence"}},
                             {"act_seqs", act_seqs, {at::kInt}, {"B"}},
                             {"w_idx_qb", w_idx_qb, {}, {"q_lora", "Ni * Di"}, Use::kMatrix},
                             {"w_idx_k", w_idx_k, {}, {"h", "Di"}, Use::kMatrix},
                             {"w_idx_proj", w_idx_proj, {}, {"h", "Ni"}, Use::kMatrix},
                             {"in_gamma_k", in_gamma_k, {}, {"Di"}},
                             {"in_beta_k", in_beta_k, {}, {"Di"}},
                             {"index_k_cache", index_k_cache, {}, {"blocks", "block_size", "1", "Di"}, Use::kWritten}});
  table.check_positive({"h", "q_lora", "N", "Dn", "Dkv", "R", "Ni", "Di", "block_size"});
  table.check_equal("N * (Dn + R)", table["N"] * (table["Dn"] + table["R"]), "N and Dn of 'w_uk', R of 'sin'");
  table.check_equal("Dkv + R", table["Dkv"] + table["R"], "Dkv of 'w_uk', R of 'sin'");
  table.check_equal("Ni * Di", table["Ni"] * table["Di"], "Ni of 'w_idx_proj', Di of 'w_idx_k'");
  table.check_rope("R", "Di");
  return table.results({{"attn_out", kSame, {"B", "S1", "N", "Dkv"}}});
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_sparse_attention_pto>(m, "custom_pypto::npu_sparse_attention_pto", [](const auto&... arguments) {
    EXEC_NPU_CMD(aclnnSparseAttentionPto, arguments...);
  });
}

}  // namespace
}  // namespace custom_pypto
