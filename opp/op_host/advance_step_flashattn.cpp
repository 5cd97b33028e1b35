// SPDX-License-Identifier: Apache-2.0
// AdvanceStepFlashattn: advances num_queries sequences by the token that was sampled for each, and clears the rows of
// padding after them.
//
// input_tokens, input_positions, seq_lens and slot_mapping are [num_seqs], sampled_token_ids is [num_queries, 1] or
// [num_queries], block_tables [num_seqs, blocks a sequence]. A sequence's new position is its length, which grows by
// one; its slot is block * block_size + offset of that position, or -1 where the block table names no block.
#include "op_kernel/advance_step_flashattn_tiling.h"

#include "definition.h"

namespace {

enum Input { kInputTokens, kSampledTokenIds, kInputPositions, kSeqLens, kSlotMapping, kBlockTables };
enum Attribute { kNumSeqs, kNumQueries, kBlockSize };

constexpr Input kWritten[] = {kInputTokens, kInputPositions, kSeqLens, kSlotMapping};  // the outputs, in order

constexpr const char* kNames[] = {"input_tokens", "sampled_token_ids", "input_positions",
                                  "seq_lens",     "slot_mapping",      "block_tables"};

// Empty, or what is wrong with the arguments.
std::string argument_error(const gert::TilingContext& context, int64_t num_seqs, int64_t num_queries,
                           int64_t block_size) {
  if (num_queries < 0 || num_queries > num_seqs) {
    return "num_queries must lie between 0 and num_seqs (" + std::to_string(num_seqs) + "), but is " +
           std::to_string(num_queries);
  }
  if (block_size < 1) return "block_size must be 1 or more, but is " + std::to_string(block_size);
  for (const Input input : {kInputTokens, kSampledTokenIds, kInputPositions, kSeqLens, kSlotMapping, kBlockTables}) {
    const std::vector<int64_t> sizes = opp::required(context, input).sizes;
    std::vector<int64_t> expected = {input == kSampledTokenIds ? num_queries : num_seqs};
    if (input == kSampledTokenIds && sizes.size() == 2) expected.push_back(1);
    if (input == kBlockTables) {
      if (sizes.size() != 2) return "block_tables must have 2 dimensions, but has shape " + opp::text_of(sizes);
      expected.push_back(sizes[1]);
    }
    if (sizes != expected) {
      return std::string(kNames[input]) + " must have shape " + opp::text_of(expected) + ", but has shape " +
             opp::text_of(sizes);
    }
  }
  return "";
}

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
  const std::string wrong = argument_error(*context, tiling.num_seqs, tiling.num_queries, tiling.block_size);
  if (!wrong.empty()) return opp::reject(wrong);
  tiling.table_width = opp::required(*context, kBlockTables).sizes[1];
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
