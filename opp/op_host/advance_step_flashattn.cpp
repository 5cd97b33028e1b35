// SPDX-License-Identifier: Apache-2.0
// AdvanceStepFlashattn: advances num_queries sequences by the token that was sampled for each, and clears the rows of
// padding after them.
//
// input_tokens, input_positions, seq_lens and slot_mapping are [num_seqs], sampled_token_ids is [num_queries, 1] or
// [num_queries], block_tables [num_seqs, blocks a sequence]. A sequence's new position is its length, which grows by
// one; its slot is block * block_size + offset of that position, or -1 where the block table names no block.
#include "op_kernel/advance_step_flashattn_tiling.h"

#include "arguments.h"

namespace {

enum Input { kInputTokens, kSampledTokenIds, kInputPositions, kSeqLens, kSlotMapping, kBlockTables };
enum Attribute { kNumSeqs, kNumQueries, kBlockSize };

constexpr Input kWritten[] = {kInputTokens, kInputPositions, kSeqLens, kSlotMapping};  // the outputs, in order

uint32_t bytes_of_number(const gert::TilingContext& context, Input input) {
  return static_cast<uint32_t>(opp::required(context, input).itemsize);
}

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  auto& tiling = *context->GetTilingData<opp::AdvanceStepFlashattnTiling>();
  tiling = {};
  tiling.num_seqs = *attributes.GetInt(kNumSeqs);
  tiling.num_queries = *attributes.GetInt(kNumQueries);
  tiling.block_size = *attributes.GetInt(kBlockSize);
  opp::Arguments arguments(*context);
  arguments.at_least("num_seqs", tiling.num_seqs, 0);
  arguments.check(0 <= tiling.num_queries && tiling.num_queries <= tiling.num_seqs, "num_queries",
                  "between 0 and num_seqs (" + std::to_string(tiling.num_seqs) + ")",
                  std::to_string(tiling.num_queries));
  arguments.at_least("block_size", tiling.block_size, 1);
  arguments.define("num_seqs", tiling.num_seqs);
  arguments.define("num_queries", tiling.num_queries);
  const bool flat = opp::required(*context, kSampledTokenIds).sizes.size() == 1;
  arguments.inputs({{"input_tokens", {"num_seqs"}},
                    {"sampled_token_ids", flat ? opp::SizeNames{"num_queries"} : opp::SizeNames{"num_queries", "1"}},
                    {"input_positions", {"num_seqs"}},
                    {"seq_lens", {"num_seqs"}},
                    {"slot_mapping", {"num_seqs"}},
                    {"block_tables", {"num_seqs", "blocks per sequence"}}});
  if (!arguments.error().empty()) return opp::reject(arguments.error());
  tiling.table_width = arguments["blocks per sequence"];
  tiling.seq_lens_bytes = bytes_of_number(*context, kSeqLens);
  tiling.slot_mapping_bytes = bytes_of_number(*context, kSlotMapping);
  tiling.block_tables_bytes = bytes_of_number(*context, kBlockTables);
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
