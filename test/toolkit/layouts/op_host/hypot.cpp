// SPDX-License-Identifier: Apache-2.0
// Hypot, whose kernel is named like the C function. It uses of the standard library what CANN's headers bring.
#include "graph/utils/type_utils.h"
#include "hypot_tiling.h"
#include "register/op_def_registry.h"
#include "tiling/platform/platform_ascendc.h"

namespace optiling {
static ge::graphStatus TilingFunc(gert::TilingContext* context) {
  auto platform = platform_ascendc::PlatformAscendC(context->GetPlatformInfo());
  uint64_t room = 0;
  platform.GetCoreMemSize(platform_ascendc::CoreMemType::UB, room);
  const auto type = context->GetInputDesc(0)->GetDataType();
  uint32_t bytes = 0;
  if (!ge::TypeUtils::GetDataTypeLength(type, bytes) || room == 0) return ge::GRAPH_FAILED;
  const std::vector<uint32_t> size = {
      static_cast<uint32_t>(context->GetInputShape(0)->GetStorageShape().GetShapeSize())};
  const std::string name = ge::TypeUtils::DataTypeToSerialString(type);
  printf("%s of %u bytes, %s\n", name.c_str(), bytes, ge::TypeUtils::FormatToAscendString(ge::FORMAT_ND).GetString());
  std::cout << "known again: " << (ge::TypeUtils::SerialStringToDataType(name) == type) << std::endl;
  HypotTilingData tiling;
  tiling.set_size(size.front());
  tiling.part.set_each(std::min<uint32_t>(size.front(), 64));
  context->SetBlockDim(1);
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}
}  // namespace optiling

namespace ge {
static ge::graphStatus InferShape(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetInputShape(0);
  return GRAPH_SUCCESS;
}
}  // namespace ge

namespace ops {
class Hypot : public OpDef {
 public:
  explicit Hypot(const char* name) : OpDef(name) {
    for (const char* input : {"x", "y"})
      this->Input(input).ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Output("z").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->SetInferShape(ge::InferShape);
    this->AICore().SetTiling(optiling::TilingFunc).AddConfig("ascend910b");
  }
};
OP_ADD(Hypot);
}  // namespace ops
