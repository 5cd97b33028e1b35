// SPDX-License-Identifier: Apache-2.0
// LightningIndexerPto: DeepSeek's lightning indexer: for each query the positions of the sparse_count keys with the
// highest scores, best first, and -1 where there are fewer keys; and with return_value their scores, -inf there, in
// weights' dtype; else sparse_values is empty. The score is the sum, over the N1 / N2 query heads that share a key
// head, of relu(query . key) * weights.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), weights the same without D and maybe in float32, sparse_indices
// [B, S1, N2, sparse_count] or [T, N2, sparse_count]. key is [blocks, block_size, N2, D] (PA_BSND: the pages that
// block_table [B, max_blocks] names), [B, S2, N2, D] (BSND) or [T2, N2, D] (TND). The lengths are [B]: counts, or
// running sums in TND. With sparse_mode 0 a query sees every key of its sequence, with 3 those up to its own position,
// the last query standing at the last key.
#include "indexer.h"

namespace {

enum Input { kWeights = 2, kQueryLengths, kKeyLengths, kBlockTable };
enum Output { kSparseIndices, kSparseValues };
enum Attribute { kLayoutQuery, kLayoutKey, kSparseCount, kSparseMode, kReturnValue };

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  return opp::infer_top_k_shapes(*context, *attributes.GetInt(kSparseCount), *attributes.GetBool(kReturnValue));
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(kSparseIndices, ge::DT_INT32);
  context->SetOutputDataType(kSparseValues, context->GetRequiredInputDataType(kWeights));
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus tile(gert::TilingContext* context) {
  opp::Arguments arguments(*context);
  const opp::Sequences sequences(*context, arguments,
                                 {kQueryLengths, kKeyLengths, kBlockTable, kLayoutQuery, kLayoutKey, kSparseMode});
  arguments.inputs({{"query", sequences.of_query({"N1", "D"})},
                    {"key", sequences.of_key({"N2", "D"})},
                    {"weights", sequences.of_query({"N1"})},
                    {"actual_seq_lengths_query", {"B"}},
                    {"actual_seq_lengths_key", {"B"}},
                    {"block_table", {"B", "blocks per sequence"}}});
  opp::check_heads(arguments);
  auto& tiling = *context->GetTilingData<opp::LightningIndexerTiling>();
  tiling = {};
  tiling.weights = opp::float_type_of(*context, kWeights);
  return opp::tile_indexer(*context, arguments, sequences, *context->GetAttrs()->GetInt(kSparseCount),
                           *context->GetAttrs()->GetBool(kReturnValue), tiling);
}

}  // namespace

namespace ops {

class LightningIndexerPto : public OpDef {
 public:
  explicit LightningIndexerPto(const char* name) : OpDef(name) {
    // weights are of query's dtype, or float32.
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT16, ge::DT_BF16};
    const opp::Types weights = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_FLOAT};
    const opp::Types int32(types.size(), ge::DT_INT32);
    opp::of_types(Input("query"), REQUIRED, types);
    opp::of_types(Input("key"), REQUIRED, types);
    opp::of_types(Input("weights"), REQUIRED, weights);
    opp::of_types(Input("actual_seq_lengths_query"), OPTIONAL, int32);
    opp::of_types(Input("actual_seq_lengths_key"), OPTIONAL, int32);
    opp::of_types(Input("block_table"), OPTIONAL, int32);
    opp::of_types(Output("sparse_indices"), REQUIRED, int32);
    opp::of_types(Output("sparse_values"), REQUIRED, weights);
    Attr("layout_query").AttrType(OPTIONAL).String("BSND");
    Attr("layout_key").AttrType(OPTIONAL).String("PA_BSND");
    Attr("sparse_count").AttrType(OPTIONAL).Int(2048);
    Attr("sparse_mode").AttrType(OPTIONAL).Int(3);
    Attr("return_value").AttrType(OPTIONAL).Bool(false);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(LightningIndexerPto);

}  // namespace ops
