// SPDX-License-Identifier: Apache-2.0
// AddCustom: out = self + other, broadcast, of the dtypes that the vector unit adds.
#include "op_kernel/add_custom_tiling.h"

#include <algorithm>

#include "definition.h"

namespace {

using opp::AddCustomTiling;

// Two inputs and an output with two buffers each, and bfloat16's two intermediate results in float, take 160 KiB.
constexpr uint64_t kTileBytes = 16 * 1024;

// Sizes from the last on are equal, or one of them is 1 or missing.
bool broadcast(const std::vector<int64_t>& self, const std::vector<int64_t>& other, std::vector<int64_t>& out) {
  const bool self_is_longer = self.size() >= other.size();
  const std::vector<int64_t>& shorter = self_is_longer ? other : self;
  out = self_is_longer ? self : other;
  const std::size_t missing = out.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    int64_t& size = out[missing + i];
    if (size != shorter[i] && size != 1 && shorter[i] != 1) return false;
    if (size == 1) size = shorter[i];
  }
  return true;
}

ge::graphStatus do_not_broadcast(const std::vector<int64_t>& self, const std::vector<int64_t>& other) {
  return opp::reject("other must broadcast with self of shape " + opp::text_of(self) + ", but has shape " +
                     opp::text_of(other));
}

// A dimension of the result, and the operands' strides in it: 0 where they are broadcast.
struct Dimension {
  uint64_t size;
  uint64_t self;
  uint64_t other;
};

uint64_t stride_in(const opp::StridedShape& tensor, std::size_t from_the_end) {
  if (from_the_end > tensor.sizes.size()) return 0;
  const std::size_t i = tensor.sizes.size() - from_the_end;
  return tensor.sizes[i] == 1 ? 0 : static_cast<uint64_t>(tensor.strides[i]);
}

// The result's dimensions, as few as describe it: neighbours that both operands run through as through one are one.
std::vector<Dimension> dimensions(const std::vector<int64_t>& out, const opp::StridedShape& self,
                                  const opp::StridedShape& other) {
  std::vector<Dimension> found;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Dimension next{static_cast<uint64_t>(out[i]), stride_in(self, out.size() - i),
                         stride_in(other, out.size() - i)};
    if (next.size == 1) continue;
    if (!found.empty() && found.back().self == next.self * next.size && found.back().other == next.other * next.size) {
      found.back() = {found.back().size * next.size, next.self, next.other};
    } else {
      found.push_back(next);
    }
  }
  if (found.empty()) found.push_back({1, 1, 1});
  return found;
}

ge::graphStatus tile(gert::TilingContext* context) {
  const opp::StridedShape self = opp::required(*context, 0), other = opp::required(*context, 1);
  std::vector<int64_t> out;
  if (!broadcast(self.sizes, other.sizes, out)) return do_not_broadcast(self.sizes, other.sizes);
  const std::vector<int64_t> given = opp::output(*context, 0).sizes;
  if (given != out) {
    return opp::reject("out must have shape " + opp::text_of(out) + ", but has shape " + opp::text_of(given));
  }
  std::vector<Dimension> all = dimensions(out, self, other);
  static_assert(AddCustomTiling::kMaxDimensions + 1 == gert::Shape::kMaxDimNum);
  const Dimension row = all.back();
  all.pop_back();
  auto& tiling = *context->GetTilingData<AddCustomTiling>();
  tiling = {};
  tiling.single = row.size == 1    ? AddCustomTiling::kNone
                  : row.self == 0  ? AddCustomTiling::kSelf
                  : row.other == 0 ? AddCustomTiling::kOther
                                   : AddCustomTiling::kNone;
  tiling.inner = row.size;
  tiling.tile = static_cast<uint32_t>(kTileBytes / static_cast<uint64_t>(self.itemsize));
  tiling.tiles = (tiling.inner + tiling.tile - 1) / tiling.tile;
  tiling.all_tiles = tiling.tiles;
  for (const Dimension& each : all) {
    tiling.sizes[tiling.dimensions] = each.size;
    tiling.self_strides[tiling.dimensions] = each.self;
    tiling.other_strides[tiling.dimensions++] = each.other;
    tiling.all_tiles *= each.size;
  }
  const uint64_t cores = opp::vector_cores(*context);
  tiling.per_block = std::max<uint64_t>((tiling.all_tiles + cores - 1) / cores, 1);
  return opp::launch(*context, static_cast<uint32_t>((tiling.all_tiles + tiling.per_block - 1) / tiling.per_block));
}

ge::graphStatus infer_shape(gert::InferShapeContext* context) {
  const std::vector<int64_t> self = opp::sizes_of(*context->GetRequiredInputShape(0));
  const std::vector<int64_t> other = opp::sizes_of(*context->GetRequiredInputShape(1));
  std::vector<int64_t> out;
  if (!broadcast(self, other, out)) return do_not_broadcast(self, other);
  *context->GetOutputShape(0) = opp::shape_of(out);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_type(gert::InferDataTypeContext* context) {
  context->SetOutputDataType(0, context->GetRequiredInputDataType(0));
  return ge::GRAPH_SUCCESS;
}

// AddCustomGrad: the gradients of AddCustom by its inputs, not yet summed to their sizes: two copies of the gradient of
// its output.
ge::graphStatus tile_grad(gert::TilingContext* context) {
  const opp::StridedShape self = opp::required(*context, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<int64_t> sizes = opp::output(*context, i).sizes;
    if (sizes != self.sizes) {
      return opp::reject(std::string(i == 0 ? "gradSelfOut" : "gradOtherOut") + " must have shape " +
                         opp::text_of(self.sizes) + ", but has shape " + opp::text_of(sizes));
    }
  }
  auto& tiling = *context->GetTilingData<opp::AddCustomGradTiling>();
  tiling.bytes = static_cast<uint64_t>(self.bytes());
  const uint64_t tiles = (tiling.bytes + tiling.kTileBytes - 1) / tiling.kTileBytes;
  const uint64_t cores = opp::vector_cores(*context);
  const uint64_t of_block = (tiles + cores - 1) / cores;
  tiling.per_block = of_block * tiling.kTileBytes;
  return opp::launch(*context, tiles == 0 ? 0 : static_cast<uint32_t>((tiles + of_block - 1) / of_block));
}

ge::graphStatus infer_grad_shape(gert::InferShapeContext* context) {
  for (std::size_t i = 0; i < 2; ++i) *context->GetOutputShape(i) = *context->GetRequiredInputShape(0);
  return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_grad_type(gert::InferDataTypeContext* context) {
  for (std::size_t i = 0; i < 2; ++i) context->SetOutputDataType(i, context->GetRequiredInputDataType(0));
  return ge::GRAPH_SUCCESS;
}

}  // namespace

namespace ops {

class AddCustom : public OpDef {
 public:
  explicit AddCustom(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT, ge::DT_INT16, ge::DT_INT32};
    opp::of_types(Input("self"), REQUIRED, types);
    opp::of_types(Input("other"), REQUIRED, types);
    opp::of_types(Output("out"), REQUIRED, types);
    SetInferShape(infer_shape);
    SetInferDataType(infer_type);
    AICore().SetTiling(tile);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(AddCustom);

class AddCustomGrad : public OpDef {
 public:
  explicit AddCustomGrad(const char* name) : OpDef(name) {
    const opp::Types types = {ge::DT_FLOAT16, ge::DT_BF16,  ge::DT_FLOAT, ge::DT_DOUBLE, ge::DT_INT8,
                              ge::DT_UINT8,   ge::DT_INT16, ge::DT_INT32, ge::DT_INT64,  ge::DT_BOOL};
    opp::of_types(Input("self"), REQUIRED, types);
    opp::of_types(Output("grad_self"), REQUIRED, types);
    opp::of_types(Output("grad_other"), REQUIRED, types);
    SetInferShape(infer_grad_shape);
    SetInferDataType(infer_grad_type);
    AICore().SetTiling(tile_grad);
    opp::for_all_socs(AICore());
  }
};

OP_ADD(AddCustomGrad);

}  // namespace ops
