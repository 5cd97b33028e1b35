// SPDX-License-Identifier: Apache-2.0
// npu_sparse_attention_pto: DeepSeek's sparse attention layer, from hidden states to what the heads read.
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <string>

#include "aclnn_sparse_attention_pto.h"
#include "argument_table.h"
#include "ops_common.h"

namespace custom_pypto {
namespace {

using at::Tensor;

void check_scale(const Checks& checks, const std::optional<double>& scale) {
  if (scale.has_value() && !(std::isfinite(*scale) && *scale > 0)) {
    checks.reject("softmax_scale", "be None or a finite number greater than 0", c10::str("is ", *scale));
  }
}

Tensor layer_meta(const Tensor& x, const Tensor& w_dq, const Tensor& w_uq_qr, const Tensor& w_uk,
                  const Tensor& w_dkv_kr, const Tensor& gamma_cq, const Tensor& gamma_ckv, const Tensor& sin,
                  const Tensor& cos, const Tensor& cache_index, const Tensor& kv_cache, const Tensor& kr_cache,
                  const Tensor& block_table, const Tensor& act_seqs, const Tensor& w_idx_qb, const Tensor& w_idx_k,
                  const Tensor& w_idx_proj, const Tensor& in_gamma_k, const Tensor& in_beta_k,
                  const Tensor& index_k_cache, int64_t sparse_count, const std::optional<double>& softmax_scale,
                  double rms_norm_eps, double layer_norm_eps, const std::string& rope_mode,
                  const std::string& indexer_rope_mode) {
  const Checks checks("custom_pypto::npu_sparse_attention_pto");
  checks.at_least("sparse_count", sparse_count, 1);
  check_scale(checks, softmax_scale);
  checks.epsilon("rms_norm_eps", rms_norm_eps);
  checks.epsilon("layer_norm_eps", layer_norm_eps);
  checks.one_of("rope_mode", rope_mode, {"interleave", "half"});
  checks.one_of("indexer_rope_mode", indexer_rope_mode, {"interleave", "half"});
  const Sizes sizes(checks, {{"x", x, {at::kBFloat16, at::kHalf}, {"B", "S1", "h"}},
                             {"w_dq", w_dq, {}, {"h", "q_lora"}, Use::kMatrix},
                             {"w_uq_qr", w_uq_qr, {}, {"q_lora", "N*(Dn+R)"}, Use::kMatrix},
                             {"w_uk", w_uk, {}, {"N", "Dn", "Dkv"}},
                             {"w_dkv_kr", w_dkv_kr, {}, {"h", "Dkv+R"}, Use::kMatrix},
                             {"gamma_cq", gamma_cq, {}, {"q_lora"}},
                             {"gamma_ckv", gamma_ckv, {}, {"Dkv"}},
                             {"sin", sin, {}, {"B", "S1", "R"}},
                             {"cos", cos, {}, {"B", "S1", "R"}},
                             {"cache_index", cache_index, {at::kInt, at::kLong}, {"B", "S1"}},
                             {"kv_cache", kv_cache, {}, {"blocks", "block_size", "1", "Dkv"}, Use::kWritten},
                             {"kr_cache", kr_cache, {}, {"blocks", "block_size", "1", "R"}, Use::kWritten},
                             {"block_table", block_table, {at::kInt}, {"B", "blocks a sequence"}},
                             {"act_seqs", act_seqs, {at::kInt}, {"B"}},
                             {"w_idx_qb", w_idx_qb, {}, {"q_lora", "Ni*Di"}, Use::kMatrix},
                             {"w_idx_k", w_idx_k, {}, {"h", "Di"}, Use::kMatrix},
                             {"w_idx_proj", w_idx_proj, {}, {"h", "Ni"}, Use::kMatrix},
                             {"in_gamma_k", in_gamma_k, {}, {"Di"}},
                             {"in_beta_k", in_beta_k, {}, {"Di"}},
                             {"index_k_cache", index_k_cache, {}, {"blocks", "block_size", "1", "Di"}, Use::kWritten}});
  sizes.check_positive({"h", "q_lora", "N", "Dn", "Dkv", "R", "Ni", "Di", "block_size"});
  sizes.check_equal("N*(Dn+R)", sizes["N"] * (sizes["Dn"] + sizes["R"]), "N and Dn of 'w_uk', R of 'sin'");
  sizes.check_equal("Dkv+R", sizes["Dkv"] + sizes["R"], "Dkv of 'w_uk', R of 'sin'");
  sizes.check_equal("Ni*Di", sizes["Ni"] * sizes["Di"], "Ni of 'w_idx_proj', Di of 'w_idx_k'");
  sizes.check_rope("R", "Di");
  return at::empty_symint({sizes["B"], sizes["S1"], sizes["N"], sizes["Dkv"]}, x.options());
}

Tensor layer_npu(const Tensor& x, const Tensor& w_dq, const Tensor& w_uq_qr, const Tensor& w_uk, const Tensor& w_dkv_kr,
                 const Tensor& gamma_cq, const Tensor& gamma_ckv, const Tensor& sin, const Tensor& cos,
                 const Tensor& cache_index, const Tensor& kv_cache, const Tensor& kr_cache, const Tensor& block_table,
                 const Tensor& act_seqs, const Tensor& w_idx_qb, const Tensor& w_idx_k, const Tensor& w_idx_proj,
                 const Tensor& in_gamma_k, const Tensor& in_beta_k, const Tensor& index_k_cache, int64_t sparse_count,
                 const std::optional<double>& softmax_scale, double rms_norm_eps, double layer_norm_eps,
                 const std::string& rope_mode, const std::string& indexer_rope_mode) {
  const Tensor attn_out =
      layer_meta(x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index, kv_cache, kr_cache,
                 block_table, act_seqs, w_idx_qb, w_idx_k, w_idx_proj, in_gamma_k, in_beta_k, index_k_cache,
                 sparse_count, softmax_scale, rms_norm_eps, layer_norm_eps, rope_mode, indexer_rope_mode);
  if (attn_out.numel() != 0) {
    const double scale = softmax_scale.value_or(0);  // 0 stands for the default
    EXEC_NPU_CMD(aclnnSparseAttentionPto, x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index,
                 kv_cache, kr_cache, block_table, act_seqs, w_idx_qb, w_idx_k, w_idx_proj, in_gamma_k, in_beta_k,
                 index_k_cache, sparse_count, scale, rms_norm_eps, layer_norm_eps, rope_mode, indexer_rope_mode,
                 attn_out);
  }
  return attn_out;
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("npu_sparse_attention_pto", &layer_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("npu_sparse_attention_pto", &layer_meta); }

}  // namespace
}  // namespace custom_pypto
