// SPDX-License-Identifier: Apache-2.0
// CollectiveAdd: its definition names the group by an attribute, its tiling says what the kernel calls.
#include "../op_kernel/collective_add_tiling.h"

#include "register/op_def_registry.h"
#include "tiling/hccl/hccl_tiling.h"

namespace optiling {
namespace {

uint32_t type_of(ge::DataType type) {
  switch (type) {
    case ge::DT_FLOAT16:
      return AscendC::HCCL_DATA_TYPE_FP16;
    case ge::DT_INT32:
      return AscendC::HCCL_DATA_TYPE_INT32;
    default:
      return AscendC::HCCL_DATA_TYPE_FP32;
  }
}

ge::graphStatus Tiling(gert::TilingContext* context) {
  const auto* attributes = context->GetAttrs();
  const char* group = attributes->GetAttrPointer<char>(0);
  auto* data = context->GetTilingData<CollectiveAddTilingData>();
  data->command = static_cast<uint32_t>(*attributes->GetAttrPointer<int64_t>(1));
  data->repeat = static_cast<uint32_t>(*attributes->GetAttrPointer<int64_t>(2));
  data->count = static_cast<uint32_t>(*attributes->GetAttrPointer<int64_t>(3));
  data->commits = static_cast<uint32_t>(*attributes->GetAttrPointer<int64_t>(4));
  data->fault = static_cast<uint32_t>(*attributes->GetAttrPointer<int64_t>(5));
  const int64_t type = *attributes->GetAttrPointer<int64_t>(6);
  data->type = type < 0 ? type_of(context->GetInputDesc(0)->GetDataType()) : static_cast<uint32_t>(type);
  data->size = static_cast<uint32_t>(context->GetOutputShape(0)->GetStorageShape().GetShapeSize());
  AscendC::Mc2CcTilingConfig config(group, data->command, "AlltoAll=level0:fullmesh;level1:pairwise");
  config.SetSkipLocalRankCopy(static_cast<uint8_t>(*attributes->GetAttrPointer<int64_t>(7)));
  config.SetSkipBufferWindowCopy(1);
  config.SetStepSize(static_cast<uint8_t>(*attributes->GetAttrPointer<int64_t>(8)));
  if (config.GetTiling(data->init) != 0 || config.GetTiling(data->cc) != 0) return ge::GRAPH_FAILED;
  context->SetBlockDim(3);
  context->GetWorkspaceSizes(1)[0] = 32;
  return ge::GRAPH_SUCCESS;
}

}  // namespace
}  // namespace optiling

namespace ops {
class CollectiveAdd : public OpDef {
 public:
  explicit CollectiveAdd(const char* name) : OpDef(name) {
    for (const char* output : {"result", "y"}) {
      this->Output(output).ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_INT32});
    }
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_INT32});
    this->Attr("group").AttrType(REQUIRED).String();
    this->Attr("command").AttrType(REQUIRED).Int();
    this->Attr("repeat").AttrType(REQUIRED).Int();
    this->Attr("count").AttrType(REQUIRED).Int();
    this->Attr("commits").AttrType(REQUIRED).Int();
    this->Attr("fault").AttrType(REQUIRED).Int();
    this->Attr("type").AttrType(REQUIRED).Int();
    this->Attr("keeps_own").AttrType(REQUIRED).Int();
    this->Attr("steps").AttrType(REQUIRED).Int();
    this->AICore().SetTiling(optiling::Tiling).AddConfig("ascend910b");
    this->MC2().HcclGroup("group");
  }
};
OP_ADD(CollectiveAdd);
}  // namespace ops
