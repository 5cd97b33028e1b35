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

enum Input { kQuery, kWeights = 2, kQueryScales, kKeyScales, kQueryLengths, kKeyLengths, kBlockTable };
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
  opp::Arguments arguments(*context);
  for (const auto& [name, mode] : {std::pair{"query_quant_mode", kQueryQuantMode}, {"key_quant_mode", kKeyQuantMode}}) {
    const int64_t given = *attributes.GetInt(mode);
    arguments.check(given == 0, name, "0, a scale for each token and head", std::to_string(given));
  }
  const opp::Sequences sequences(*context, arguments,
                                 {kQueryLengths, kKeyLengths, kBlockTable, kLayoutQuery, kLayoutKey, kSparseMode});
  const bool as_prolog =
      opp::required(*context, kQueryScales).sizes.size() == opp::required(*context, kQuery).sizes.size();
  arguments.inputs(
      {{"query", sequences.of_query({"N1", "D"})},
       {"key", sequences.of_key({"N2", "D"})},
       {"weights", sequences.of_query({"N1"})},
       {"query_dequant_scale", sequences.of_query(as_prolog ? opp::SizeNames{"N1", "1"} : opp::SizeNames{"N1"})},
       {"key_dequant_scale", sequences.of_key({"N2"})},
       {"actual_seq_lengths_query", {"B"}},
       {"actual_seq_lengths_key", {"B"}},
       {"block_table", {"B", "blocks per sequence"}}});
  opp::check_heads(arguments);
  arguments.at_most("D", opp::kMaxProducts, "whose products int32 can sum");
  auto& tiling = *context->GetTilingData<opp::LightningIndexerTiling>();
  tiling = {};
  tiling.weights = opp::float_type_of(*context, kWeights);
  tiling.query_scales = opp::float_type_of(*context, kQueryScales);
  tiling.key_scales = opp::float_type_of(*context, kKeyScales);
  return opp::tile_indexer(*context, arguments, sequences, *attributes.GetInt(kSparseCount),
                           *attributes.GetBool(kReturnValue), tiling);
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
