// SPDX-License-Identifier: Apache-2.0
// SumInto: adds a list of tensors to one, in place; a plain struct of tiling data, and a workspace.
#include "register/op_def_registry.h"
#include "sum_into_tiling.h"

namespace {

ge::graphStatus tile(gert::TilingContext* context) {
  auto* tiling = context->GetTilingData<SumIntoTiling>();
  tiling->elements = static_cast<uint32_t>(context->GetRequiredInputShape(0)->GetOriginShape().GetShapeSize());
  while (context->GetDynamicInputShape(1, tiling->terms) != nullptr) ++tiling->terms;
  context->SetBlockDim(1);
  *context->GetWorkspaceSizes(1) = tiling->elements * sizeof(float);
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class SumInto : public OpDef {
 public:
  explicit SumInto(const char* name) : OpDef(name) {
    this->Input("total").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Input("terms").ParamType(DYNAMIC).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Output("total").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->AICore().SetTiling(tile).AddConfig("ascend910b");
  }
};

OP_ADD(SumInto);

}  // namespace ops
