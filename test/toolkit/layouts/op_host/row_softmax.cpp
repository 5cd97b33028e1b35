// SPDX-License-Identifier: Apache-2.0
// RowSoftmax, tiled by the library's functions; of complex numbers the rows stay as they are.
#include "register/op_def_registry.h"
#include "tiling/tiling_api.h"

namespace optiling {
BEGIN_TILING_DATA_DEF(RowSoftmaxTilingData)
TILING_DATA_FIELD_DEF(uint32_t, rows);
TILING_DATA_FIELD_DEF(uint32_t, columns);
TILING_DATA_FIELD_DEF(uint32_t, workBytes);
TILING_DATA_FIELD_DEF_STRUCT(SoftMaxTiling, softmax);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(RowSoftmax, RowSoftmaxTilingData)

static ge::graphStatus TilingFunc(gert::TilingContext* context) {
  const gert::Shape& x = context->GetInputShape(0)->GetOriginShape();
  RowSoftmaxTilingData tiling;
  tiling.set_rows(x.GetDim(0));
  tiling.set_columns(x.GetDim(1));
  const ge::Shape shape(std::vector<int64_t>{x.GetDim(0), x.GetDim(1)});
  const uint32_t bytes = AscendC::GetSoftMaxMinTmpSize(shape, sizeof(float), false);
  AscendC::SoftMaxTilingFunc(shape, sizeof(float), bytes, tiling.softmax);
  uint32_t most = 0, least = 0;
  AscendC::GetTanhMaxMinTmpSize(shape, sizeof(float), false, most, least);
  tiling.set_workBytes(std::max(bytes, least));
  context->SetBlockDim(1);
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  return ge::GRAPH_SUCCESS;
}
}  // namespace optiling

namespace ge {
static ge::graphStatus InferRows(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetInputShape(0);
  return GRAPH_SUCCESS;
}
}  // namespace ge

namespace ops {
class RowSoftmax : public OpDef {
 public:
  explicit RowSoftmax(const char* name) : OpDef(name) {
    this->Input("x")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT, ge::DT_COMPLEX64})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Output("y")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT, ge::DT_COMPLEX64})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->SetInferShape(ge::InferRows);
    this->AICore().SetTiling(optiling::TilingFunc).AddConfig("ascend910b");
  }
};
OP_ADD(RowSoftmax);
}  // namespace ops
