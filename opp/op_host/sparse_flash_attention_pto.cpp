// SPDX-License-Identifier: Apache-2.0
// SparseFlashAttentionPto: sparse flash attention: each query attends to the key tokens whose positions sparse_indices
// names up to its first -1, with scores of scale_value * (query . key + query_rope . key_rope). attention_sinks [N1]
// has a score for each head that counts in the softmax and has no value. Without a token the result is zero.
// softmax_lse, [B, S1, N1] or [T, N1], is the logarithm of the sum of the scores' exponentials; without
// return_softmax_lse it is empty.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), query_rope and attention_out the same with a last dimension of
// their own, sparse_indices [B, S1, N2, k] or [T, N2, k]. key, value and key_rope are [blocks, block_size, N2, .]
// (PA_BSND), [B, S2, N2, .] (BSND) or [T2, N2, .] (TND); value may be key. Lengths, block_table and sparse_mode are
// those of LightningIndexerPto: positions that a query does not see are left out.
#include "sparse_flash_attention.h"

#include <limits>

#include "sequences.h"

namespace {

enum Input {
  kQuery,
  kKey,
  kValue,
  kSparseIndices,
  kBlockTable,
  kQueryLengths,
  kKeyLengths,
  kQueryRope,
  kKeyRope,
  kAttentionSinks
};
enum Output { kAttentionOut, kSoftmaxLse };
enum Attribute { kScaleValue, kLayoutQuery, kLayoutKv, kSparseMode, kReturnSoftmaxLse };

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  std::vector<int64_t> sizes = opp::sizes_of(*context->GetRequiredInputShape(kQuery));
  const gert::Shape& value = *context->GetRequiredInputShape(kValue);
  if (sizes.size() < 3 || value.GetDimNum() < 3) return opp::reject("query and value must have 3 or 4 dimensions");
  sizes.back() = value.GetDim(value.GetDimNum() - 1);
  *context->GetOutputShape(kAttentionOut) = opp::shape_of(sizes);
  sizes.pop_back();
  const bool with_lse = *context->GetAttrs()->GetBool(kReturnSoftmaxLse);
  *context->GetOutputShape(kSoftmaxLse) = opp::shape_of(with_lse ? sizes : std::vector<int64_t>{0});
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(kAttentionOut, context->GetRequiredInputDataType(kQuery));
  context->SetOutputDataType(kSoftmaxLse, ge::DT_FLOAT);
  return ge::GRAPH_SUCCESS;
}

// Elements of a matrix row in device memory that the instruction to the cube core takes, in whole fractals.
constexpr int64_t kMaxDepth = std::numeric_limits<uint16_t>::max() / 16 * 16;

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  opp::Arguments arguments(*context);
  const opp::Sequences sequences(*context, arguments,
                                 {kQueryLengths, kKeyLengths, kBlockTable, kLayoutQuery, kLayoutKv, kSparseMode,
                                  "layout_kv", "actual_seq_lengths_kv"});
  const bool rope = context->GetOptionalInputShape(kQueryRope) != nullptr;
  const bool with_lse = *attributes.GetBool(kReturnSoftmaxLse);
  arguments.check(rope == (context->GetOptionalInputShape(kKeyRope) != nullptr), rope ? "key_rope" : "query_rope",
                  rope ? "given with query_rope" : "given with key_rope", "null");
  arguments.inputs({{"query", sequences.of_query({"N1", "D"})},
                    {"key", sequences.of_key({"N2", "D"})},
                    {"value", sequences.of_key({"N2", "Dv"})},
                    {"sparse_indices", sequences.of_query({"N2", "k"})},
                    {"block_table", {"B", "blocks per sequence"}},
                    {"actual_seq_lengths_query", {"B"}},
                    {"actual_seq_lengths_kv", {"B"}},
                    {"query_rope", sequences.of_query({"N1", "Dr"})},
                    {"key_rope", sequences.of_key({"N2", "Dr"})},
                    {"attention_sinks", {"N1"}}});
  opp::check_heads(arguments);
  arguments.positive({"Dv", "k", "Dr"});
  for (const char* depth : {"D", "Dr", "Dv"}) arguments.at_most(depth, kMaxDepth, "which an instruction can copy");
  arguments.at_most("block_size", opp::SparseFlashAttentionTiling::kMaxPage, "as positions are divided by it exactly");
  arguments.outputs(
      {{"attention_out", sequences.of_query({"N1", "Dv"})}, {"softmax_lse", sequences.of_query_if(with_lse, {"N1"})}});
  if (!arguments.error().empty()) return opp::reject(arguments.error());
  const opp::AttentionSizes sizes{sequences.tokens(), arguments["N1"], arguments["N2"], arguments["D"],
                                  arguments["Dr"],    arguments["Dv"], arguments["k"]};
  auto& tiling = *context->GetTilingData<opp::SparseFlashAttentionTiling>();
  tiling = {};
  tiling.sequences = sequences.tiling();
  tiling.scale = *attributes.GetFloat(kScaleValue);
  tiling.sinks = context->GetOptionalInputShape(kAttentionSinks) != nullptr;
  tiling.with_lse = with_lse;
  opp::divide(tiling, sizes, opp::required(*context, kQuery).itemsize, opp::cube_cores(*context));
  return opp::launch_together(*context, tiling.blocks, tiling.workspace);
}

}  // namespace

namespace ops {

class SparseFlashAttentionPto : public OpDef {
 public:
  explicit SparseFlashAttentionPto(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16};
    const opp::Types int32(types.size(), ge::DT_INT32), float32(types.size(), ge::DT_FLOAT);
    opp::of_types(Input("query"), REQUIRED, types);
    opp::of_types(Input("key"), REQUIRED, types);
    opp::of_types(Input("value"), REQUIRED, types);
    opp::of_types(Input("sparse_indices"), REQUIRED, int32);
    opp::of_types(Input("block_table"), OPTIONAL, int32);
    opp::of_types(Input("actual_seq_lengths_query"), OPTIONAL, int32);
    opp::of_types(Input("actual_seq_lengths_kv"), OPTIONAL, int32);
    opp::of_types(Input("query_rope"), OPTIONAL, types);
    opp::of_types(Input("key_rope"), OPTIONAL, types);
    opp::of_types(Input("attention_sinks"), OPTIONAL, float32);
    opp::of_types(Output("attention_out"), REQUIRED, types);
    opp::of_types(Output("softmax_lse"), REQUIRED, float32);
    Attr("scale_value").AttrType(REQUIRED).Float();
    Attr("layout_query").AttrType(OPTIONAL).String("BSND");
    Attr("layout_kv").AttrType(OPTIONAL).String("PA_BSND");
    Attr("sparse_mode").AttrType(OPTIONAL).Int(3);
    Attr("return_softmax_lse").AttrType(OPTIONAL).Bool(false);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(SparseFlashAttentionPto);

}  // namespace ops
