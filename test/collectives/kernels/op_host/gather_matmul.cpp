// SPDX-License-Identifier: Apache-2.0
// GatherMatmul: AllGather of the left matrices' rows and a product of each.
#include "../op_kernel/gather_matmul_tiling.h"

#include "register/op_def_registry.h"
#include "tiling/hccl/hccl_tiling.h"
#include "tiling/tiling_api.h"

namespace optiling {
static ge::graphStatus Tiling(gert::TilingContext* context) {
  auto platform = platform_ascendc::PlatformAscendC(context->GetPlatformInfo());
  auto* data = context->GetTilingData<GatherMatmulTilingData>();
  const auto& a = context->GetInputShape(0)->GetStorageShape();
  data->rows = static_cast<uint32_t>(a.GetDim(0));
  data->depth = static_cast<uint32_t>(a.GetDim(1));
  data->columns = static_cast<uint32_t>(context->GetInputShape(1)->GetStorageShape().GetDim(1));
  matmul_tiling::MatmulApiTiling tiling(platform);
  const auto gm = matmul_tiling::TPosition::GM;
  const auto nd = matmul_tiling::CubeFormat::ND;
  const auto half = matmul_tiling::DataType::DT_FLOAT16;
  tiling.SetAType(gm, nd, half);
  tiling.SetBType(gm, nd, half);
  tiling.SetCType(gm, nd, half);
  tiling.SetShape(data->rows, data->columns, data->depth);
  tiling.SetOrgShape(data->rows, data->columns, data->depth);
  tiling.SetBufferSpace(-1, -1, -1);
  if (tiling.GetTiling(data->matmul) == -1) return ge::GRAPH_FAILED;
  const uint32_t command = static_cast<uint32_t>(AscendC::HcclCMDType::HCCL_CMD_ALLGATHER);
  AscendC::Mc2CcTilingConfig config(context->GetAttrs()->GetAttrPointer<char>(0), command,
                                    "AllGather=level0:doublering");
  config.GetTiling(data->init);
  config.GetTiling(data->cc);
  context->SetBlockDim(2);
  context->GetWorkspaceSizes(1)[0] = platform.GetLibApiWorkSpaceSize();
  return ge::GRAPH_SUCCESS;
}
}  // namespace optiling

namespace ops {
class GatherMatmul : public OpDef {
 public:
  explicit GatherMatmul(const char* name) : OpDef(name) {
    for (const char* input : {"a", "b"}) this->Input(input).ParamType(REQUIRED).DataType({ge::DT_FLOAT16});
    for (const char* output : {"gathered", "c"}) this->Output(output).ParamType(REQUIRED).DataType({ge::DT_FLOAT16});
    this->Attr("group").AttrType(REQUIRED).String();
    this->AICore().SetTiling(optiling::Tiling).AddConfig("ascend910b");
    this->MC2().HcclGroup({"group"});
  }
};
OP_ADD(GatherMatmul);
}  // namespace ops
