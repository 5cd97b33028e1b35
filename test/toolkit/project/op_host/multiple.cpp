// SPDX-License-Identifier: Apache-2.0
// Multiple: y = factor * x, by a kernel that is a template over dtype, factor and sign.
#include "../op_kernel/multiple_key.h"

#include <cstdlib>

#include "register/op_def_registry.h"

namespace {

ge::graphStatus tile(gert::TilingContext* context) {
  using namespace multiple;
  const int64_t factor = *context->GetAttrs()->GetInt(0);
  const auto elements = static_cast<uint32_t>(context->GetInputShape(0)->GetStorageShape().GetShapeSize());
  if (factor <= 0 && factor > -2) {
    context->GetTilingData<NegativeTiling>()->elements = elements;
  } else {
    context->GetTilingData<Tiling>()->elements = elements;
  }
  ASCENDC_TPL_SEL_PARAM(context, context->GetInputDesc(0)->GetDataType(), std::abs(factor), factor <= 0);
  context->SetBlockDim(1);
  *context->GetWorkspaceSizes(1) = 0;
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class Multiple : public OpDef {
 public:
  explicit Multiple(const char* name) : OpDef(name) {
    this->Input("x")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT16, ge::DT_FLOAT})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Output("y")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT16, ge::DT_FLOAT})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Attr("factor").Int();
    this->AICore().SetTiling(tile).AddConfig("ascend910b");
  }
};

OP_ADD(Multiple);

}  // namespace ops
