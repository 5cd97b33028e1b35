// SPDX-License-Identifier: Apache-2.0
// SparseAttentionPto: DeepSeek's sparse attention layer in decode, from hidden states to what the heads read: the MLA
// prolog, the lightning indexer and the attention over the tokens that it selects, with three paged caches written on
// the way.
//
// x is [B, S1, h], w_dq [h, q_lora], w_uq_qr [q_lora, N (Dn + R)], w_uk [N, Dn, Dkv], w_dkv_kr [h, Dkv + R],
// gamma_cq [q_lora], gamma_ckv [Dkv], sin and cos [B, S1, R], w_idx_qb [q_lora, Ni Di], w_idx_k [h, Di], w_idx_proj
// [h, Ni], in_gamma_k and in_beta_k [Di]; the matrices, but for w_uk, may lie in FRACTAL_NZ. kv_cache is [blocks,
// block_size, 1, Dkv], kr_cache and index_k_cache the same with R and Di; they are written at the slots of
// cache_index [B, S1], of which -1 is skipped. block_table [B, blocks a sequence] and act_seqs [B], which counts
// the new tokens too, say where a sequence's keys are. attn_out is [B, S1, N, Dkv]. A softmax_scale of 0 stands for
// 1 / sqrt(Dkv + R).
#include "definition.h"

namespace {

enum Input { kX, kWUk = 3, kKvCache = 10, kKrCache, kIndexKCache = 19 };

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  std::vector<int64_t> sizes = opp::sizes_of(*context->GetRequiredInputShape(kX));
  const gert::Shape& w_uk = *context->GetRequiredInputShape(kWUk);
  if (sizes.size() != 3 || w_uk.GetDimNum() != 3) return opp::reject("x and w_uk must have 3 dimensions");
  sizes.back() = w_uk.GetDim(0);
  sizes.push_back(w_uk.GetDim(2));
  *context->GetOutputShape(0) = opp::shape_of(sizes);
  *context->GetOutputShape(1) = *context->GetRequiredInputShape(kKvCache);
  *context->GetOutputShape(2) = *context->GetRequiredInputShape(kKrCache);
  *context->GetOutputShape(3) = *context->GetRequiredInputShape(kIndexKCache);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  for (std::size_t i = 0; i < 4; ++i) context->SetOutputDataType(i, context->GetRequiredInputDataType(kX));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class SparseAttentionPto : public OpDef {
 public:
  explicit SparseAttentionPto(const char* name) : OpDef(name) {
    const auto lists = opp::combinations({{ge::DT_BF16, ge::DT_FLOAT16}, {ge::DT_INT64, ge::DT_INT32}});
    const opp::Types &types = lists[0], &slots = lists[1];
    const opp::Types int32(types.size(), ge::DT_INT32);
    opp::of_types(Input("x"), REQUIRED, types);
    for (const char* each : {"w_dq", "w_uq_qr"}) opp::matrix_of_types(Input(each), types);
    opp::of_types(Input("w_uk"), REQUIRED, types);
    opp::matrix_of_types(Input("w_dkv_kr"), types);
    for (const char* each : {"gamma_cq", "gamma_ckv", "sin", "cos"}) opp::of_types(Input(each), REQUIRED, types);
    opp::of_types(Input("cache_index"), REQUIRED, slots);
    for (const char* each : {"kv_cache", "kr_cache"}) opp::of_types(Input(each), REQUIRED, types);
    for (const char* each : {"block_table", "act_seqs"}) opp::of_types(Input(each), REQUIRED, int32);
    for (const char* each : {"w_idx_qb", "w_idx_k", "w_idx_proj"}) opp::matrix_of_types(Input(each), types);
    for (const char* each : {"in_gamma_k", "in_beta_k", "index_k_cache"}) opp::of_types(Input(each), REQUIRED, types);
    for (const char* each : {"attn_out", "kv_cache", "kr_cache", "index_k_cache"}) {
      opp::of_types(Output(each), REQUIRED, types);
    }
    Attr("sparse_count").AttrType(OPTIONAL).Int(2048);
    Attr("softmax_scale").AttrType(OPTIONAL).Float(0);
    Attr("rms_norm_eps").AttrType(OPTIONAL).Float(1e-5);
    Attr("layer_norm_eps").AttrType(OPTIONAL).Float(1e-6);
    Attr("rope_mode").AttrType(OPTIONAL).String("interleave");
    Attr("indexer_rope_mode").AttrType(OPTIONAL).String("interleave");
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
  }
};

OP_ADD(SparseAttentionPto);

}  // namespace ops
