// SPDX-License-Identifier: Apache-2.0
// ScaledSum: out = x + alpha * y [+ bias]. The attribute `fault` makes its parts go wrong, one after the other.
#include "scaled_sum_tiling.h"

#include <cstdlib>

#include "register/op_def_registry.h"

namespace optiling {
namespace {

enum Fault {
  kNone,
  kTilingFails,
  kPastItsData,
  kNoBlocks,
  kUnknownKey,
  kInferenceFails,
  kKernelFails,
  kInferenceIsWrong
};

int tiled = 0;
int cores_then = 0;

int64_t fault_of(const gert::RuntimeAttrs& attributes) { return *attributes.GetInt(1); }

ge::graphStatus tile(gert::TilingContext* context) {
  ++tiled;
  const gert::RuntimeAttrs& attributes = *context->GetAttrs();
  const int64_t fault = fault_of(attributes);
  if (fault == kTilingFails) return ge::GRAPH_FAILED;

  platform_ascendc::PlatformAscendC platform(context->GetPlatformInfo());
  uint64_t ub = 0;
  platform.GetCoreMemSize(platform_ascendc::CoreMemType::UB, ub);
  const uint64_t elements = context->GetInputShape(0)->GetStorageShape().GetShapeSize();
  const uint64_t cores = platform.GetCoreNumAiv();
  cores_then = static_cast<int>(cores);
  const uint64_t per_block = (elements / cores + 63) / 32 * 32;

  ScaledSumTiling tiling;
  tiling.set_has_bias(context->GetOptionalInputShape(2) != nullptr);
  tiling.set_alpha(*attributes.GetFloat(0));
  tiling.share.set_elements(elements);
  tiling.share.set_per_block(per_block);
  const int16_t marks[] = {1, -2, static_cast<int16_t>(tiled)};
  tiling.set_marks(marks);
  tiling.set_tile(static_cast<uint32_t>(ub / 1024 * 8));
  auto* raw = context->GetRawTilingData();
  tiling.SaveToBuffer(raw->GetData(), raw->GetCapacity());
  raw->SetDataSize(fault == kPastItsData ? sizeof(float) : tiling.GetDataSize());
  context->SetBlockDim(fault == kNoBlocks ? 0 : static_cast<uint32_t>((elements + per_block - 1) / per_block));
  context->SetTilingKey(fault == kUnknownKey ? 7 : fault == kKernelFails ? 2 : 1);
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  if (fault_of(*context->GetAttrs()) == kInferenceFails) return ge::GRAPH_FAILED;
  *context->GetOutputShape(0) = *context->GetInputShape(0);
  if (fault_of(*context->GetAttrs()) == kInferenceIsWrong) context->GetOutputShape(0)->AppendDim(2);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  return context->SetOutputDataType(0, context->GetInputDataType(0));
}

}  // namespace
}  // namespace optiling

// How often it was called, for the test of the tiling cache.
extern "C" __attribute__((visibility("default"))) int scaled_sum_tiled() { return optiling::tiled; }
// How many cores there were then.
extern "C" __attribute__((visibility("default"))) int scaled_sum_cores() { return optiling::cores_then; }

namespace ops {

class ScaledSum : public OpDef {
 public:
  explicit ScaledSum(const char* name) : OpDef(name) {
    for (const char* input : {"x", "y"}) {
      this->Input(input)
          .ParamType(REQUIRED)
          .DataType({ge::DT_FLOAT16, ge::DT_FLOAT})
          .Format({ge::FORMAT_ND, ge::FORMAT_ND})
          .UnknownShapeFormat({ge::FORMAT_ND, ge::FORMAT_ND});
    }
    this->Input("the_bias")
        .ParamType(OPTIONAL)
        .DataType({ge::DT_FLOAT16, ge::DT_FLOAT})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Output("out")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT16, ge::DT_FLOAT})
        .Format({ge::FORMAT_ND, ge::FORMAT_ND});
    this->Attr("alpha").AttrType(OPTIONAL).Float(1.0);
    this->Attr("fault").AttrType(OPTIONAL).Int(0);
    this->SetInferShape(optiling::infer_shape).SetInferDataType(optiling::infer_type);
    this->AICore().SetTiling(optiling::tile).AddConfig("ascend910b").AddConfig("ascend310p");
  }
};

OP_ADD(ScaledSum);

}  // namespace ops
