// SPDX-License-Identifier: Apache-2.0
// RepeatRows: row i of x, counts[i] times, then as many rows of zeros as the attributes add up to; and where each row
// begins. Inference and tiling read the values of counts. `fault` makes its parts go wrong, one after the other.
#include <cstring>

#include "register/op_def_registry.h"
#include "repeat_rows_tiling.h"

namespace {

enum Fault { kNone, kShapeFails, kNegativeDimension, kTilingFails };

int64_t rows_of(const gert::Tensor& counts, const gert::RuntimeAttrs& attributes) {
  int64_t rows = 0;
  for (int64_t i = 0; i < counts.GetShapeSize(); ++i) rows += counts.GetData<int64_t>()[i];
  rows += *attributes.GetInt(1) + static_cast<int64_t>(*attributes.GetFloat(2)) + (*attributes.GetBool(3) ? 1 : 0);
  rows += static_cast<int64_t>(std::strlen(attributes.GetStr(4)));
  for (size_t i = 0; i < attributes.GetListInt(5)->GetSize(); ++i) rows += attributes.GetListInt(5)->GetData()[i];
  for (size_t i = 0; i < attributes.GetListFloat(6)->GetSize(); ++i) {
    rows += static_cast<int64_t>(attributes.GetListFloat(6)->GetData()[i]);
  }
  return rows;
}

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  if (*attributes.GetInt(0) == kTilingFails) return ge::GRAPH_FAILED;
  const gert::Tensor& counts = *context->GetInputTensor(1);
  auto* tiling = context->GetTilingData<RepeatRowsTiling>();
  tiling->rows = static_cast<uint32_t>(context->GetInputShape(0)->GetOriginShape().GetDim(0));
  tiling->columns = static_cast<uint32_t>(context->GetInputShape(0)->GetOriginShape().GetDim(1));
  tiling->out_rows = static_cast<uint32_t>(rows_of(counts, attributes));
  if (tiling->rows > kMostRows || counts.GetShapeSize() != tiling->rows) return ge::GRAPH_FAILED;
  for (uint32_t i = 0; i < tiling->rows; ++i) {
    tiling->first[i + 1] = tiling->first[i] + static_cast<int32_t>(counts.GetData<int64_t>()[i]);
  }
  context->SetBlockDim(1);
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  const int64_t fault = *attributes.GetInt(0);
  const gert::Tensor* counts = context->GetInputTensor(1);
  if (fault == kShapeFails || counts == nullptr || counts->GetData<int64_t>() == nullptr) return ge::GRAPH_FAILED;
  const int64_t rows = fault == kNegativeDimension ? -1 : rows_of(*counts, attributes);
  *context->GetOutputShape(0) = {rows, context->GetInputShape(0)->GetDim(1)};
  *context->GetOutputShape(1) = {context->GetInputShape(0)->GetDim(0)};
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetInputDataType(0));
  return context->SetOutputDataType(1, ge::DT_INT32);
}

}  // namespace

IMPL_OP_INFERSHAPE(RepeatRows).InferShape(infer_shape).InferDataType(infer_type).InputsDataDependency({1});
IMPL_OP_OPTILING(RepeatRows).Tiling(tile).TilingInputsDataDependency({1});

namespace ops {

class RepeatRows : public OpDef {
 public:
  explicit RepeatRows(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Input("counts").ParamType(REQUIRED).DataType({ge::DT_INT64}).Format({ge::FORMAT_ND}).ValueDepend(OPTIONAL);
    this->Output("out").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Output("first").ParamType(REQUIRED).DataType({ge::DT_INT32}).Format({ge::FORMAT_ND});
    this->Attr("fault").AttrType(OPTIONAL).Int(0);
    this->Attr("more").AttrType(OPTIONAL).Int(0);
    this->Attr("number").AttrType(OPTIONAL).Float(0);
    this->Attr("flag").AttrType(OPTIONAL).Bool(false);
    this->Attr("text").AttrType(OPTIONAL).String("");
    this->Attr("integers").AttrType(OPTIONAL).ListInt({});
    this->Attr("numbers").AttrType(OPTIONAL).ListFloat({});
    this->AICore().AddConfig("ascend910b");
  }
};

OP_ADD(RepeatRows);

}  // namespace ops
