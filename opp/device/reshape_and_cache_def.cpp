// SPDX-License-Identifier: Apache-2.0
// ReshapeAndCache for CANN: its definition, and the tiling of a call.
#include <cstring>

#include "definition.h"
#include "op_host/reshape_and_cache_tiling.h"

namespace {

enum Input { kKey, kValue, kKeyCache, kValueCache, kSlotMapping };

opp::TensorView view(const opp::Contiguous& tensor) {
  return {tensor.sizes.data(), tensor.strides.data(), static_cast<int64_t>(tensor.sizes.size()), tensor.itemsize};
}

ge::graphStatus tile(gert::TilingContext* context) {
  const char* layout = context->GetAttrs()->GetStr(0);
  const bool nz = layout != nullptr && std::strcmp(layout, "NZ") == 0;
  const opp::Contiguous key = opp::required(*context, kKey), key_cache = opp::required(*context, kKeyCache);
  const opp::Contiguous slots = opp::required(*context, kSlotMapping);
  auto& tiling = *context->GetTilingData<opp::ReshapeAndCacheTiling>();
  tiling = {};
  tiling.tokens = slots.elements();
  tiling.slot_bytes = slots.itemsize;
  tiling.capacity = key_cache.sizes[0] * key_cache.sizes[nz ? 2 : 1];
  tiling.copy[tiling.copies++] = opp::tile(view(key), view(key_cache), nz);
  if (const gert::StorageShape* shape = context->GetOptionalInputShape(kValue)) {
    const opp::Contiguous value(*shape, context->GetOptionalInputDesc(kValue)->GetDataType());
    const opp::Contiguous cache(*context->GetOptionalInputShape(kValueCache),
                                context->GetOptionalInputDesc(kValueCache)->GetDataType());
    tiling.copy[tiling.copies++] = opp::tile(view(value), view(cache), nz);
  }
  opp::divide(tiling, opp::vector_cores(*context));
  return opp::launch(*context, tiling.blocks);
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetRequiredInputShape(kKeyCache);
  if (const gert::Shape* shape = context->GetOptionalInputShape(kValueCache)) *context->GetOutputShape(1) = *shape;
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetRequiredInputDataType(kKeyCache));
  context->SetOutputDataType(1, context->GetOptionalInputDataType(kValueCache));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class ReshapeAndCache : public OpDef {
 public:
  explicit ReshapeAndCache(const char* name) : OpDef(name) {
    const opp::Types rows = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_INT8, ge::DT_FLOAT};
    const auto types = opp::combinations({rows, rows, {ge::DT_INT64, ge::DT_INT32}});
    opp::of_types(Input("key"), REQUIRED, types[0]);
    opp::of_types(Input("value"), OPTIONAL, types[1]);
    opp::of_types(Input("key_cache"), REQUIRED, types[0]);
    opp::of_types(Input("value_cache"), OPTIONAL, types[1]);
    opp::of_types(Input("slot_mapping"), REQUIRED, types[2]);
    opp::of_types(Output("key_cache"), REQUIRED, types[0]);
    opp::of_types(Output("value_cache"), REQUIRED, types[1]);
    Attr("cache_layout").AttrType(OPTIONAL).String("ND");
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(ReshapeAndCache);

}  // namespace ops
