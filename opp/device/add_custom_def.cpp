// SPDX-License-Identifier: Apache-2.0
// AddCustom for CANN: its definition, and the tiling of a call.
#include <algorithm>

#include "definition.h"
#include "op_host/add_custom_tiling.h"

namespace {

// The dtypes that the vector unit adds; the kernel's tiling key is the dtype.
constexpr ge::DataType kAdded[] = {ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_INT32, ge::DT_INT16};

// Rejects what the prototype has and the kernel has not: shapes that broadcast, and the other dtypes.
ge::graphStatus tile(gert::TilingContext* context) {
  const ge::DataType type = context->GetRequiredInputDesc(0)->GetDataType();
  const opp::Contiguous self = opp::required(*context, 0);
  const bool added = std::find(std::begin(kAdded), std::end(kAdded), type) != std::end(kAdded);
  if (!added || self.sizes != opp::required(*context, 1).sizes) return ge::GRAPH_FAILED;
  auto& tiling = *context->GetTilingData<opp::AddCustomTiling>();
  tiling = opp::tile_add_custom(static_cast<uint64_t>(self.elements()), static_cast<uint32_t>(self.itemsize),
                                opp::vector_cores(*context));
  context->SetTilingKey(type);
  return opp::launch(*context, tiling.blocks);
}

// The shapes broadcast: sizes from the last on are equal, or one of them is 1 or missing.
ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  const gert::Shape* longer = context->GetRequiredInputShape(0);
  const gert::Shape* shorter = context->GetRequiredInputShape(1);
  if (longer->GetDimNum() < shorter->GetDimNum()) std::swap(longer, shorter);
  gert::Shape& out = *context->GetOutputShape(0);
  out = *longer;
  const std::size_t missing = longer->GetDimNum() - shorter->GetDimNum();
  for (std::size_t i = 0; i < shorter->GetDimNum(); ++i) {
    const int64_t size = shorter->GetDim(i), other = longer->GetDim(missing + i);
    if (size != other && size != 1 && other != 1) return ge::GRAPH_FAILED;
    out.SetDim(missing + i, other == 1 ? size : other);
  }
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetRequiredInputDataType(0));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class AddCustom : public OpDef {
 public:
  explicit AddCustom(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT, ge::DT_DOUBLE, ge::DT_INT8,
                              ge::DT_UINT8,   ge::DT_INT16, ge::DT_INT32, ge::DT_INT64,  ge::DT_BOOL};
    opp::of_types(Input("self"), REQUIRED, types);
    opp::of_types(Input("other"), REQUIRED, types);
    opp::of_types(Output("out"), REQUIRED, types);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(AddCustom);

}  // namespace ops
