// Softcap: out = cap * tanh(x / cap).
#include "op_kernel/softcap_tiling.h"

#include <algorithm>

#include "definition.h"

namespace {

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  *context->GetOutputShape(0) = *context->GetRequiredInputShape(0);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetRequiredInputDataType(0));
  return ge::GRAPH_SUCCESS;
}

// Divides the elements among the vector cores, in whole tiles.
ge::graphStatus tile(gert::TilingContext* context) {
  auto& tiling = *context->GetTilingData<opp::SoftcapTiling>();
  tiling.cap = *context->GetAttrs()->GetFloat(0);
  if (!(tiling.cap > 0)) return opp::reject("cap must be above 0, but is " + std::to_string(tiling.cap));
  const uint64_t cores = opp::vector_cores(*context);
  tiling.elements = static_cast<uint64_t>(opp::required(*context, 0).elements());
  const uint64_t tiles = (tiling.elements + tiling.kTile - 1) / tiling.kTile;
  tiling.per_block = std::max<uint64_t>((tiles + cores - 1) / cores, 1) * tiling.kTile;
  const uint64_t blocks = (tiling.elements + tiling.per_block - 1) / tiling.per_block;
  return opp::launch(*context, static_cast<uint32_t>(std::max<uint64_t>(blocks, 1)));
}

}  // namespace

namespace ops {

class Softcap : public OpDef {
 public:
  explicit Softcap(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};
    opp::of_types(Input("x"), REQUIRED, types);
    opp::of_types(Output("out"), REQUIRED, types);
    Attr("cap").AttrType(OPTIONAL).Float(30.0);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(Softcap);

}  // namespace ops
