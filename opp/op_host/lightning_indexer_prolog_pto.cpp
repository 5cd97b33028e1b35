// SPDX-License-Identifier: Apache-2.0
// LightningIndexerPrologPto: the prolog of DeepSeek's quantised lightning indexer: from hidden states to int8 queries,
// int8 keys in the paged cache, and the weights of the query heads, with a scale for each quantised row. RoPE, Hadamard
// and quantisation are those of custom_pypto.ops.npu_lightning_indexer_prolog_pto.
//
// token_x is [T, h] (TND) or [B, S1, h] (BSND), and so are the leading dimensions of q_norm [., q_lora],
// q_norm_scale [., 1], cos_idx_rope and sin_idx_rope [., R], idx_k_cache_index [.], query [., N, D], query_scale
// [., N, 1] and weights [., N]. wq_b is [q_lora, N D], wq_b_scale [N D, 1], wk [h, D], weights_proj [h, N]; these
// three matrices may lie in FRACTAL_NZ. idx_k_cache is [blocks, block_size, 1, D] (PA_BSND), [B, S2, 1, D] (BSND)
// or [T2, 1, D] (TND), its scales the same without D; both are written at the slots of idx_k_cache_index, of which
// -1 is skipped.
#include "definition.h"

namespace {

enum Input { kTokenX, kWk = 5, kWeightsProj, kIdxKCache = 13, kIdxKScaleCache };
enum Output { kQuery, kQueryScale, kWeights, kIdxKCacheOut, kIdxKScaleCacheOut };

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  std::vector<int64_t> tokens = opp::sizes_of(*context->GetRequiredInputShape(kTokenX));
  const gert::Shape& wk = *context->GetRequiredInputShape(kWk);
  const gert::Shape& weights_proj = *context->GetRequiredInputShape(kWeightsProj);
  if (tokens.empty() || wk.GetDimNum() != 2 || weights_proj.GetDimNum() != 2) {
    return opp::reject("token_x must have 2 or 3 dimensions, wk and weights_proj 2");
  }
  tokens.back() = weights_proj.GetDim(1);
  *context->GetOutputShape(kWeights) = opp::shape_of(tokens);
  tokens.push_back(1);
  *context->GetOutputShape(kQueryScale) = opp::shape_of(tokens);
  tokens.back() = wk.GetDim(1);
  *context->GetOutputShape(kQuery) = opp::shape_of(tokens);
  *context->GetOutputShape(kIdxKCacheOut) = *context->GetRequiredInputShape(kIdxKCache);
  *context->GetOutputShape(kIdxKScaleCacheOut) = *context->GetRequiredInputShape(kIdxKScaleCache);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  for (const Output output : {kQuery, kIdxKCacheOut}) context->SetOutputDataType(output, ge::DT_INT8);
  for (const Output output : {kQueryScale, kWeights, kIdxKScaleCacheOut}) {
    context->SetOutputDataType(output, ge::DT_FLOAT16);
  }
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class LightningIndexerPrologPto : public OpDef {
 public:
  explicit LightningIndexerPrologPto(const char* name) : OpDef(name) {
    const auto lists = opp::combinations({{ge::DT_BF16, ge::DT_FLOAT16}, {ge::DT_INT64, ge::DT_INT32}});
    const opp::Types &types = lists[0], &slots = lists[1];
    const opp::Types int8(types.size(), ge::DT_INT8), float32(types.size(), ge::DT_FLOAT);
    const opp::Types float16(types.size(), ge::DT_FLOAT16);
    opp::of_types(Input("token_x"), REQUIRED, types);
    opp::of_types(Input("q_norm"), REQUIRED, int8);
    opp::of_types(Input("q_norm_scale"), REQUIRED, float32);
    opp::matrix_of_types(Input("wq_b"), int8);
    opp::of_types(Input("wq_b_scale"), REQUIRED, float32);
    opp::matrix_of_types(Input("wk"), types);
    opp::matrix_of_types(Input("weights_proj"), types);
    for (const char* each : {"ln_gamma_k", "ln_beta_k", "cos_idx_rope", "sin_idx_rope", "hadamard_q", "hadamard_k"}) {
      opp::of_types(Input(each), REQUIRED, types);
    }
    opp::of_types(Input("idx_k_cache"), REQUIRED, int8);
    opp::of_types(Input("idx_k_scale_cache"), REQUIRED, float16);
    opp::of_types(Input("idx_k_cache_index"), REQUIRED, slots);
    opp::of_types(Output("query"), REQUIRED, int8);
    opp::of_types(Output("query_scale"), REQUIRED, float16);
    opp::of_types(Output("weights"), REQUIRED, float16);
    opp::of_types(Output("idx_k_cache"), REQUIRED, int8);
    opp::of_types(Output("idx_k_scale_cache"), REQUIRED, float16);
    Attr("layernorm_epsilon_k").AttrType(REQUIRED).Float();
    Attr("layout_query").AttrType(OPTIONAL).String("TND");
    Attr("layout_key").AttrType(OPTIONAL).String("PA_BSND");
    Attr("rope_mode").AttrType(OPTIONAL).String("interleave");
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
  }
};

OP_ADD(LightningIndexerPrologPto);

}  // namespace ops
