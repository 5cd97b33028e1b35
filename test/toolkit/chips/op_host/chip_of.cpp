// SPDX-License-Identifier: Apache-2.0
// ChipOf: y is what tiling and the kernel know of the chip; x has whether the kernel copies by DataCopyPad.
#include "register/op_def_registry.h"
#include "register/tilingdata_base.h"
#include "tiling/platform/platform_ascendc.h"

namespace optiling {

BEGIN_TILING_DATA_DEF(ChipOfTiling)
TILING_DATA_FIELD_DEF(uint32_t, cores);
TILING_DATA_FIELD_DEF(uint32_t, bytes);
TILING_DATA_FIELD_DEF(uint32_t, pads);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(ChipOf, ChipOfTiling)

static ge::graphStatus tile(gert::TilingContext* context) {
  const platform_ascendc::PlatformAscendC platform(context->GetPlatformInfo());
  uint64_t bytes = 0;
  platform.GetCoreMemSize(platform_ascendc::CoreMemType::UB, bytes);
  ChipOfTiling tiling;
  tiling.set_cores(platform.GetCoreNumAiv());
  tiling.set_bytes(static_cast<uint32_t>(bytes));
  tiling.set_pads(context->GetInputShape(0)->GetStorageShape().GetShapeSize() > 8);
  auto* raw = context->GetRawTilingData();
  tiling.SaveToBuffer(raw->GetData(), raw->GetCapacity());
  raw->SetDataSize(tiling.GetDataSize());
  context->SetBlockDim(1);
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}

}  // namespace optiling

namespace ops {

class ChipOf : public OpDef {
 public:
  explicit ChipOf(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
    this->AICore().SetTiling(optiling::tile);
    for (const char* unit : {"ascend910", "ascend910b", "ascend310p", "ascend310b", "ascend950"}) {
      this->AICore().AddConfig(unit);
    }
  }
};

OP_ADD(ChipOf);

}  // namespace ops
