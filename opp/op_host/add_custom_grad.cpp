// SPDX-License-Identifier: Apache-2.0
// AddCustomGrad: the gradients of AddCustom by its inputs, not yet summed to their sizes: two copies of the gradient of
// its output.
#include "op_kernel/add_custom_grad_tiling.h"

#include "definition.h"

namespace {

ge::graphStatus tile(gert::TilingContext* context) {
  const opp::StridedShape self = opp::required(*context, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<int64_t> sizes = opp::output(*context, i).sizes;
    if (sizes != self.sizes) {
      return opp::reject(std::string(i == 0 ? "gradSelfOut" : "gradOtherOut") + " must have shape " +
                         opp::text_of(self.sizes) + ", but has shape " + opp::text_of(sizes));
    }
  }
  auto& tiling = *context->GetTilingData<opp::AddCustomGradTiling>();
  tiling.bytes = static_cast<uint64_t>(self.bytes());
  const uint64_t tiles = (tiling.bytes + tiling.kTileBytes - 1) / tiling.kTileBytes;
  const uint64_t cores = opp::vector_cores(*context);
  const uint64_t of_block = (tiles + cores - 1) / cores;
  tiling.per_block = of_block * tiling.kTileBytes;
  return opp::launch(*context, tiles == 0 ? 0 : static_cast<uint32_t>((tiles + of_block - 1) / of_block));
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  for (std::size_t i = 0; i < 2; ++i) *context->GetOutputShape(i) = *context->GetRequiredInputShape(0);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  for (std::size_t i = 0; i < 2; ++i) context->SetOutputDataType(i, context->GetRequiredInputDataType(0));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class AddCustomGrad : public OpDef {
 public:
  explicit AddCustomGrad(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT, ge::DT_DOUBLE, ge::DT_INT8,
                              ge::DT_UINT8,   ge::DT_INT16, ge::DT_INT32, ge::DT_INT64,  ge::DT_BOOL};
    opp::of_types(Input("self"), REQUIRED, types);
    opp::of_types(Output("grad_self"), REQUIRED, types);
    opp::of_types(Output("grad_other"), REQUIRED, types);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(AddCustomGrad);

}  // namespace ops
