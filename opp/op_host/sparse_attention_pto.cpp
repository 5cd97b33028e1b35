// SPDX-License-Identifier: Apache-2.0
// SparseAttentionPto: DeepSeek's sparse attention layer in decode, from hidden states to what the heads read: the MLA
// prolog, the lightning indexer and the attention over the tokens that it selects, with three paged caches written on
// the way.
//
// x is [B, S1, h], w_dq [h, q_lora], w_uq_qr [q_lora, N (Dn + R)], w_uk [N, Dn, Dkv], w_dkv_kr [h, Dkv + R],
// gamma_cq [q_lora], gamma_ckv [Dkv], sin and cos [B, S1, R], w_idx_qb [q_lora, Ni Di], w_idx_k [h, Di], w_idx_proj
// [h, Ni], in_gamma_k and in_beta_k [Di]; the matrices, but for w_uk, may lie in FRACTAL_NZ. kv_cache is [blocks,
// block_size, 1, Dkv], kr_cache and index_k_cache the same with R and Di; they are written at the slots of
// cache_index [B, S1]. A slot of -1 is skipped. block_table [B, blocks a sequence] and act_seqs [B], which also counts
// the new tokens, specify the places of a sequence's keys. attn_out is [B, S1, N, Dkv]. A softmax_scale of 0 stands
// for 1 / sqrt(Dkv + R).
#include "op_kernel/sparse_attention_pto_tiling.h"

#include <algorithm>
#include <cmath>

#include "indexer.h"
#include "sparse_attention_prolog.h"
#include "sparse_flash_attention.h"

namespace {

enum Input {
  kX,
  kWDq,
  kWUqQr,
  kWUk,
  kWDkvKr,
  kGammaCq,
  kGammaCkv,
  kSin,
  kCos,
  kCacheIndex,
  kKvCache,
  kKrCache,
  kBlockTable,
  kActSeqs,
  kWIdxQb,
  kWIdxK,
  kWIdxProj,
  kInGammaK,
  kInBetaK,
  kIndexKCache
};
enum Attribute { kSparseCount, kSoftmaxScale, kRmsNormEps, kLayerNormEps, kRopeMode, kIndexerRopeMode };

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

void check(opp::Arguments& arguments, const gert::RuntimeAttrs& attributes) {
  const float scale = *attributes.GetFloat(kSoftmaxScale);
  arguments.at_least("sparse_count", *attributes.GetInt(kSparseCount), 1);
  arguments.check(std::isfinite(scale) && scale >= 0, "softmax_scale", "a finite number of 0 or more",
                  std::to_string(scale));
  arguments.epsilon("rms_norm_eps", *attributes.GetFloat(kRmsNormEps));
  arguments.epsilon("layer_norm_eps", *attributes.GetFloat(kLayerNormEps));
  arguments.one_of("rope_mode", attributes.GetStr(kRopeMode), {"interleave", "half"});
  arguments.one_of("indexer_rope_mode", attributes.GetStr(kIndexerRopeMode), {"interleave", "half"});
  arguments.inputs({{"x", {"B", "S1", "h"}},
                    {"w_dq", {"h", "q_lora"}},
                    {"w_uq_qr", {"q_lora", "N * (Dn + R)"}},
                    {"w_uk", {"N", "Dn", "Dkv"}},
                    {"w_dkv_kr", {"h", "Dkv + R"}},
                    {"gamma_cq", {"q_lora"}},
                    {"gamma_ckv", {"Dkv"}},
                    {"sin", {"B", "S1", "R"}},
                    {"cos", {"B", "S1", "R"}},
                    {"cache_index", {"B", "S1"}},
                    {"kv_cache", {"blocks", "block_size", "1", "Dkv"}},
                    {"kr_cache", {"blocks", "block_size", "1", "R"}},
                    {"block_table", {"B", "blocks per sequence"}},
                    {"act_seqs", {"B"}},
                    {"w_idx_qb", {"q_lora", "Ni * Di"}},
                    {"w_idx_k", {"h", "Di"}},
                    {"w_idx_proj", {"h", "Ni"}},
                    {"in_gamma_k", {"Di"}},
                    {"in_beta_k", {"Di"}},
                    {"index_k_cache", {"blocks", "block_size", "1", "Di"}}});
  arguments.positive({"h", "q_lora", "N", "Dn", "Dkv", "R", "Ni", "Di", "block_size"});
  arguments.equal("N * (Dn + R)", arguments["N"] * (arguments["Dn"] + arguments["R"]), "N and Dn of w_uk, R of sin");
  arguments.equal("Dkv + R", arguments["Dkv"] + arguments["R"], "Dkv of w_uk, R of sin");
  arguments.equal("Ni * Di", arguments["Ni"] * arguments["Di"], "Ni of w_idx_proj, Di of w_idx_k");
  arguments.rope("R", "Di");
  for (const char* width : {"q_lora", "Dkv", "Di"}) {
    arguments.at_most(width, opp::SparseAttentionPrologTiling::kMaxWidth,
                      "for a row of them lies in the unified buffer");
  }
  arguments.at_most("block_size", opp::SparseFlashAttentionTiling::kMaxPage, "as positions are divided by it exactly");
  arguments.outputs({{"attn_out", {"B", "S1", "N", "Dkv"}}});
}

opp::SparseAttentionPrologTiling prolog_of(const gert::TilingContext& context, const opp::Arguments& arguments) {
  const gert::RuntimeAttrs& attributes = *context.GetAttrs();
  opp::SparseAttentionPrologTiling tiling{};
  tiling.tokens = arguments["B"] * arguments["S1"];
  tiling.hidden = arguments["h"];
  tiling.q_lora = arguments["q_lora"];
  tiling.heads = arguments["N"];
  tiling.depth = arguments["Dn"];
  tiling.kv_lora = arguments["Dkv"];
  tiling.rope_depth = arguments["R"];
  tiling.index_heads = arguments["Ni"];
  tiling.index_depth = arguments["Di"];
  tiling.capacity = arguments["blocks"] * arguments["block_size"];
  tiling.slots_of_row = arguments["S1"];
  tiling.slot_bytes = static_cast<uint32_t>(opp::required(context, kCacheIndex).itemsize);
  tiling.rms_epsilon = *attributes.GetFloat(kRmsNormEps);
  tiling.layer_epsilon = *attributes.GetFloat(kLayerNormEps);
  tiling.interleaved = std::string(attributes.GetStr(kRopeMode)) == "interleave";
  tiling.index_interleaved = std::string(attributes.GetStr(kIndexerRopeMode)) == "interleave";
  tiling.w_dq_in_blocks = opp::is_in_blocks(context, kWDq);
  tiling.w_uq_qr_in_blocks = opp::is_in_blocks(context, kWUqQr);
  tiling.w_dkv_kr_in_blocks = opp::is_in_blocks(context, kWDkvKr);
  tiling.w_idx_qb_in_blocks = opp::is_in_blocks(context, kWIdxQb);
  tiling.w_idx_k_in_blocks = opp::is_in_blocks(context, kWIdxK);
  tiling.w_idx_proj_in_blocks = opp::is_in_blocks(context, kWIdxProj);
  return tiling;
}

// Each sequence has S1 new tokens, which see the keys up to their own.
opp::SequencesTiling sequences_of(const opp::Arguments& arguments) {
  opp::SequencesTiling tiling{};
  tiling.batch = arguments["B"];
  tiling.queries = arguments["S1"];
  tiling.pages = arguments["blocks"];
  tiling.page_size = arguments["block_size"];
  tiling.pages_of_row = arguments["blocks per sequence"];
  tiling.keys = tiling.pages_of_row * tiling.page_size;
  tiling.paged = tiling.causal = tiling.key_lengths = 1;
  return tiling;
}

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  opp::Arguments arguments(*context);
  check(arguments, attributes);
  if (!arguments.error().empty()) return opp::reject(arguments.error());
  const int64_t itemsize = opp::required(*context, kX).itemsize;
  const uint32_t blocks = opp::cube_cores(*context);
  auto& tiling = *context->GetTilingData<opp::SparseAttentionPtoTiling>();
  tiling = {};
  opp::SparseAttentionPrologTiling& prolog = tiling.prolog = prolog_of(*context, arguments);
  opp::divide(prolog, itemsize);

  const opp::SequencesTiling sequences = sequences_of(arguments);
  tiling.indexer.sequences = tiling.attention.sequences = sequences;
  // More than a sequence can have are not selected.
  const int64_t count = std::min(*attributes.GetInt(kSparseCount), std::max<int64_t>(sequences.keys, 1));
  tiling.indexer.weights = opp::float_type_of(*context, kX);
  opp::divide(tiling.indexer, {prolog.tokens, prolog.index_heads, 1, prolog.index_depth, count}, blocks);
  tiling.indexer.blocks = blocks;
  const float scale = *attributes.GetFloat(kSoftmaxScale);
  tiling.attention.scale =
      scale > 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(prolog.kv_lora + prolog.rope_depth)));
  opp::divide(tiling.attention,
              {prolog.tokens, prolog.heads, 1, prolog.kv_lora, prolog.rope_depth, prolog.kv_lora, count}, itemsize,
              blocks);
  opp::use_blocks(tiling.attention, itemsize, blocks);

  opp::Workspace workspace;
  workspace.place(prolog.bytes);
  tiling.selected = workspace.place(prolog.tokens * count * static_cast<int64_t>(sizeof(int32_t)));
  tiling.of_indexer = workspace.place(static_cast<int64_t>(tiling.indexer.bytes_of_workspace()));
  tiling.of_attention = workspace.place(static_cast<int64_t>(tiling.attention.workspace));
  return opp::launch_together(*context, blocks, static_cast<uint64_t>(workspace.bytes()));
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
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(SparseAttentionPto);

}  // namespace ops
