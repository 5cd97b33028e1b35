// SPDX-License-Identifier: Apache-2.0
// AddTotal: y = x + the total of some numbers, which tiling adds up. Its tiling is registered for the device alone.
#include "op_host/infershape_elewise_util.h"
#include "register/op_def_registry.h"

namespace ops {

class AddTotal : public OpDef {
 public:
  explicit AddTotal(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Input("numbers")
        .ParamType(REQUIRED)
        .DataType({ge::DT_INT64})
        .Format({ge::FORMAT_ND})
        .ValueDepend(OPTIONAL, DependScope::TILING);
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->SetInferShape(Ops::Base::InferShape4Elewise);
    this->SetInferDataType([](gert::InferDataTypeContext* context) {
      return context->SetOutputDataType(0, context->GetInputDataType(0));
    });
    this->AICore().AddConfig("ascend910b");
  }
};

OP_ADD(AddTotal);

}  // namespace ops
