// SPDX-License-Identifier: Apache-2.0
// AdvanceStepFlashattn for CANN: its definition, and the tiling of a call.
#include "definition.h"
#include "op_host/advance_step_flashattn_tiling.h"

namespace {

enum Input { kInputTokens, kSampledTokenIds, kInputPositions, kSeqLens, kSlotMapping, kBlockTables };
enum Attribute { kNumSeqs, kNumQueries, kBlockSize };

constexpr Input kWritten[] = {kInputTokens, kInputPositions, kSeqLens, kSlotMapping};  // the outputs, in order

opp::NumbersTiling numbers(const gert::TilingContext& context, Input input) {
  const opp::Contiguous tensor = opp::required(context, input);
  return {tensor.itemsize, tensor.itemsize};
}

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  const opp::Contiguous table = opp::required(*context, kBlockTables);
  auto& tiling = *context->GetTilingData<opp::AdvanceStepFlashattnTiling>();
  tiling = {};
  tiling.num_seqs = *attributes.GetInt(kNumSeqs);
  tiling.num_queries = *attributes.GetInt(kNumQueries);
  tiling.block_size = *attributes.GetInt(kBlockSize);
  if (tiling.num_queries < 0 || tiling.num_queries > tiling.num_seqs || tiling.block_size < 1) return ge::GRAPH_FAILED;
  tiling.table_width = table.sizes[1];
  tiling.input_tokens = numbers(*context, kInputTokens);
  tiling.sampled_token_ids = numbers(*context, kSampledTokenIds);
  tiling.input_positions = numbers(*context, kInputPositions);
  tiling.seq_lens = numbers(*context, kSeqLens);
  tiling.slot_mapping = numbers(*context, kSlotMapping);
  tiling.block_table = numbers(*context, kBlockTables);
  tiling.block_table_row = table.strides[0] * table.itemsize;
  return opp::launch(*context, opp::AdvanceStepFlashattnTiling::kBlocks);
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  for (std::size_t i = 0; i < 4; ++i) *context->GetOutputShape(i) = *context->GetRequiredInputShape(kWritten[i]);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  for (std::size_t i = 0; i < 4; ++i) context->SetOutputDataType(i, context->GetRequiredInputDataType(kWritten[i]));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class AdvanceStepFlashattn : public OpDef {
 public:
  explicit AdvanceStepFlashattn(const char* name) : OpDef(name) {
    const opp::Types integers = {ge::DT_INT32, ge::DT_INT64};
    const auto types = opp::combinations({{ge::DT_INT64}, integers, integers, integers});
    opp::of_types(Input("input_tokens"), REQUIRED, types[0]);
    opp::of_types(Input("sampled_token_ids"), REQUIRED, types[0]);
    opp::of_types(Input("input_positions"), REQUIRED, types[0]);
    opp::of_types(Input("seq_lens"), REQUIRED, types[1]);
    opp::of_types(Input("slot_mapping"), REQUIRED, types[2]);
    opp::of_types(Input("block_tables"), REQUIRED, types[3]);
    opp::of_types(Output("input_tokens"), REQUIRED, types[0]);
    opp::of_types(Output("input_positions"), REQUIRED, types[0]);
    opp::of_types(Output("seq_lens"), REQUIRED, types[1]);
    opp::of_types(Output("slot_mapping"), REQUIRED, types[2]);
    Attr("num_seqs").AttrType(REQUIRED).Int();
    Attr("num_queries").AttrType(REQUIRED).Int();
    Attr("block_size").AttrType(REQUIRED).Int();
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(AdvanceStepFlashattn);

}  // namespace ops
