// SPDX-License-Identifier: Apache-2.0
// LightningIndexerPrologPto: the prolog of DeepSeek's quantised lightning indexer: from hidden states to int8 queries,
// int8 keys in the paged cache, and the weights of the query heads, with a scale for each quantised row. RoPE, Hadamard
// and quantisation are those of custom_pypto.ops.npu_lightning_indexer_prolog_pto.
//
// token_x is [T, h] (TND) or [B, S1, h] (BSND), and so are the leading dimensions of q_norm [., q_lora],
// q_norm_scale [., 1], cos_idx_rope and sin_idx_rope [., R], idx_k_cache_index [.], query [., N, D], query_scale
// [., N, 1] and weights [., N]. wq_b is [q_lora, N D], wq_b_scale [N D, 1], wk [h, D], weights_proj [h, N]; these
// three matrices may lie in FRACTAL_NZ. idx_k_cache is [blocks, block_size, 1, D] (PA_BSND), [B, S2, 1, D] (BSND)
// or [T2, 1, D] (TND), its scales the same without D. Both are written at the slots of idx_k_cache_index. A slot of -1
// is skipped.
#include "op_kernel/lightning_indexer_prolog_pto_tiling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "arguments.h"
#include "workspace.h"

namespace {

using Tiling = opp::LightningIndexerPrologPtoTiling;

enum Input { kTokenX, kWqB = 3, kWk = 5, kWeightsProj, kIdxKCache = 13, kIdxKScaleCache, kIdxKCacheIndex };
enum Output { kQuery, kQueryScale, kWeights, kIdxKCacheOut, kIdxKScaleCacheOut };
enum Attribute { kEpsilon, kLayoutQuery, kLayoutKey, kRopeMode };

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

constexpr int64_t kMaxBytesOfAChunk = 32 << 20;
// What a block has at least: bytes of weights, or numbers of queries.
constexpr int64_t kMinBytesOfABlock = 128 << 10;
constexpr int64_t kMinNumbersOfABlock = 32 << 10;

// Places a chunk's intermediate results in its part of the workspace.
void lay_out(Tiling& tiling, int64_t itemsize) {
  const int64_t queries = tiling.chunk * tiling.heads, numbers = queries * tiling.depth;
  opp::Workspace part;
  tiling.queries = part.place(numbers * static_cast<int64_t>(sizeof(int32_t)));
  tiling.keys = part.place(tiling.chunk * tiling.key_pitch * static_cast<int64_t>(sizeof(float)));
  tiling.weights = part.place(queries * itemsize);
  tiling.rotated_queries = part.place(numbers * itemsize);
  tiling.rotated_keys = part.place(tiling.chunk * tiling.depth * itemsize);
  tiling.query_products = part.place(queries * tiling.product_pitch * itemsize);
  tiling.key_products = part.place(tiling.chunk * tiling.product_pitch * itemsize);
  tiling.chunk_bytes = part.bytes();
}

uint32_t blocks_for(const Tiling& tiling, int64_t itemsize, uint32_t cores) {
  const int64_t columns = tiling.heads * tiling.depth;
  const int64_t weights = tiling.q_lora * columns + tiling.hidden * (tiling.depth + tiling.heads) * itemsize;
  const int64_t blocks = std::max(weights / kMinBytesOfABlock, tiling.tokens * columns / kMinNumbersOfABlock);
  return static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, cores));
}

void check(opp::Arguments& arguments, const gert::RuntimeAttrs& attributes) {
  const std::string layout_query = attributes.GetStr(kLayoutQuery), layout_key = attributes.GetStr(kLayoutKey);
  arguments.one_of("layout_query", layout_query, {"TND", "BSND"});
  arguments.one_of("layout_key", layout_key, {"PA_BSND", "BSND", "TND"});
  arguments.one_of("rope_mode", attributes.GetStr(kRopeMode), {"interleave", "half"});
  arguments.epsilon("layernorm_epsilon_k", *attributes.GetFloat(kEpsilon));
  const auto tokens = [&](const opp::SizeNames& names) {
    return opp::joined(layout_query == "TND" ? opp::SizeNames{"T"} : opp::SizeNames{"B", "S1"}, names);
  };
  const opp::SizeNames scales = layout_key == "TND"       ? opp::SizeNames{"T2", "1"}
                                : layout_key == "PA_BSND" ? opp::SizeNames{"blocks", "block_size", "1"}
                                                          : opp::SizeNames{"sequences", "S2", "1"};
  arguments.inputs({{"token_x", tokens({"h"})},
                    {"q_norm", tokens({"q_lora"})},
                    {"q_norm_scale", tokens({"1"})},
                    {"wq_b", {"q_lora", "N * D"}},
                    {"wq_b_scale", {"N * D", "1"}},
                    {"wk", {"h", "D"}},
                    {"weights_proj", {"h", "N"}},
                    {"ln_gamma_k", {"D"}},
                    {"ln_beta_k", {"D"}},
                    {"cos_idx_rope", tokens({"R"})},
                    {"sin_idx_rope", tokens({"R"})},
                    {"hadamard_q", {"D", "D"}},
                    {"hadamard_k", {"D", "D"}},
                    {"idx_k_cache", opp::joined(scales, {"D"})},
                    {"idx_k_scale_cache", scales},
                    {"idx_k_cache_index", tokens({})}});
  arguments.positive({"h", "q_lora", "N", "D", "R"});
  arguments.at_most("q_lora", opp::kMaxProducts, "whose products int32 can sum");
  arguments.equal("N * D", arguments["N"] * arguments["D"], "N of weights_proj times D of wk");
  arguments.rope("R", "D");
  arguments.at_most("D", Tiling::kMaxDepth, "for a row of them lies in the unified buffer");
  arguments.outputs({{"query", tokens({"N", "D"})}, {"query_scale", tokens({"N", "1"})}, {"weights", tokens({"N"})}});
}

ge::graphStatus tile(gert::TilingContext* context) {
  opp::Arguments arguments(*context);
  check(arguments, *context->GetAttrs());
  if (!arguments.error().empty()) return opp::reject(arguments.error());
  const opp::StridedShape slots = opp::required(*context, kIdxKCacheIndex);
  const int64_t itemsize = opp::required(*context, kTokenX).itemsize;
  auto& tiling = *context->GetTilingData<Tiling>();
  tiling = {};
  tiling.tokens = slots.elements();
  tiling.hidden = arguments["h"];
  tiling.q_lora = arguments["q_lora"];
  tiling.heads = arguments["N"];
  tiling.depth = arguments["D"];
  tiling.rope_depth = arguments["R"];
  tiling.capacity = opp::required(*context, kIdxKScaleCache).elements();
  tiling.slots_of_row = slots.sizes.size() == 2 ? slots.sizes[1] : 0;
  tiling.slot_bytes = static_cast<uint32_t>(slots.itemsize);
  tiling.epsilon = *context->GetAttrs()->GetFloat(kEpsilon);
  tiling.weights_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(tiling.heads * tiling.depth)));
  tiling.interleaved = std::string(context->GetAttrs()->GetStr(kRopeMode)) == "interleave";
  tiling.wq_b_in_blocks = opp::is_in_blocks(*context, kWqB);
  tiling.wk_in_blocks = opp::is_in_blocks(*context, kWk);
  tiling.weights_proj_in_blocks = opp::is_in_blocks(*context, kWeightsProj);
  tiling.key_pitch = opp::round_up(tiling.depth, 16);      // blocks of 32 bytes, also after rounding to 16 bits
  tiling.product_pitch = opp::round_up(tiling.depth, 32);  // and to 8 bits
  tiling.chunk = 1;
  lay_out(tiling, itemsize);
  tiling.chunk =
      std::clamp<int64_t>(std::min(kMaxBytesOfAChunk / tiling.chunk_bytes, tiling.tokens), 1, Tiling::kMaxTokens);
  lay_out(tiling, itemsize);
  return opp::launch_together(*context, blocks_for(tiling, itemsize, opp::cube_cores(*context)),
                              2 * static_cast<uint64_t>(tiling.chunk_bytes));
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
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(LightningIndexerPrologPto);

}  // namespace ops
