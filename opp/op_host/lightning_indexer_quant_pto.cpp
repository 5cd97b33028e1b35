// SPDX-License-Identifier: Apache-2.0
// LightningIndexerQuantPto: LightningIndexerPto on int8 queries and keys, as LightningIndexerPrologPto makes them: the
// score is the sum, over the N1 / N2 query heads that share a key head, of relu(query . key) * weights *
// query_dequant_scale, times key_dequant_scale. Layouts, lengths and results are those of LightningIndexerPto, but that
// sparse_values are float32.
//
// query_dequant_scale is query without D, or with 1 in its place; key_dequant_scale is key without D. The modes are 0:
// a scale for each token and head.
#include "indexer.h"

namespace {

enum Input { kQuery, kKey, kWeights, kQueryScales, kKeyScales, kQueryLengths, kKeyLengths, kBlockTable };
enum Output { kSparseIndices, kSparseValues };
enum Attribute { kQueryQuantMode, kKeyQuantMode, kLayoutQuery, kLayoutKey, kSparseCount, kSparseMode, kReturnValue };

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  return opp::infer_top_k_shapes(*context, *attributes.GetInt(kSparseCount), *attributes.GetBool(kReturnValue));
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(kSparseIndices, ge::DT_INT32);
  context->SetOutputDataType(kSparseValues, ge::DT_FLOAT);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  auto& tiling = *context->GetTilingData<opp::LightningIndexerTiling>();
  tiling = {};
  tiling.weights = opp::float_type_of(*context, kWeights);
  tiling.query_scales = opp::float_type_of(*context, kQueryScales);
  tiling.key_scales = opp::float_type_of(*context, kKeyScales);
  return opp::tile_indexer(
      *context, {kQuery, kKey, kQueryLengths, kKeyLengths, kBlockTable},
      {attributes.GetStr(kLayoutQuery), attributes.GetStr(kLayoutKey), *attributes.GetInt(kSparseCount),
       *attributes.GetInt(kSparseMode), *attributes.GetBool(kReturnValue)},
      tiling);
}

}  // namespace

namespace ops {

class LightningIndexerQuantPto : public OpDef {
 public:
  explicit LightningIndexerQuantPto(const char* name) : OpDef(name) {
    const opp::Types scales = {ge::DT_FLOAT16, ge::DT_FLOAT};
    const auto lists = opp::combinations({{ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT}, scales, scales});
    const std::size_t count = lists[0].size();
    const opp::Types int8(count, ge::DT_INT8), int32(count, ge::DT_INT32), float32(count, ge::DT_FLOAT);
    opp::of_types(Input("query"), REQUIRED, int8);
    opp::of_types(Input("key"), REQUIRED, int8);
    opp::of_types(Input("weights"), REQUIRED, lists[0]);
    opp::of_types(Input("query_dequant_scale"), REQUIRED, lists[1]);
    opp::of_types(Input("key_dequant_scale"), REQUIRED, lists[2]);
    opp::of_types(Input("actual_seq_lengths_query"), OPTIONAL, int32);
    opp::of_types(Input("actual_seq_lengths_key"), OPTIONAL, int32);
    opp::of_types(Input("block_table"), OPTIONAL, int32);
    opp::of_types(Output("sparse_indices"), REQUIRED, int32);
    opp::of_types(Output("sparse_values"), REQUIRED, float32);
    Attr("query_quant_mode").AttrType(OPTIONAL).Int(0);
    Attr("key_quant_mode").AttrType(OPTIONAL).Int(0);
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

OP_ADD(LightningIndexerQuantPto);

}  // namespace ops
