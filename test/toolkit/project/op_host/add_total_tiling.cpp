// SPDX-License-Identifier: Apache-2.0
// The tiling of AddTotal, which a graph may sink to the device.
#include "../op_kernel/add_total_tiling.h"

#include "log/log.h"
#include "op_host/util/math_util.h"
#include "op_host/util/platform_util.h"
#include "op_host/util/shape_util.h"
#include "register/device_op_impl_registry.h"
#include "register/op_def_registry.h"

namespace {

ge::graphStatus tile(gert::TilingContext* context) {
  const gert::Tensor* numbers = context->GetInputTensor(1);
  OP_CHECK_NULL_WITH_CONTEXT(context, numbers);
  const gert::ComputeNodeInfo* node = context->GetComputeNodeInfo();
  OP_CHECK_IF(node->GetInputsNum() != 2 || node->GetOutputsNum() != 1 || node->GetInputTdInfo(1) == nullptr ||
                  node->GetInputTdInfo(1)->GetDataType() != ge::DT_INT64,
              OP_LOGE(context, "the node has other tensors"), return ge::GRAPH_FAILED);
  const gert::Shape& shape = context->GetInputShape(0)->GetOriginShape();
  const int64_t bytes = Ops::Base::CeilAlign(shape.GetShapeSize() * int64_t{sizeof(float)}, int64_t{32});
  OP_CHECK_IF(bytes > static_cast<int64_t>(Ops::Base::GetUbSize(context)),
              OP_LOGE(context, "x of shape %s does not fit", Ops::Base::ToString(shape).c_str()),
              return ge::GRAPH_FAILED);
  const auto* values = numbers->GetData<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < numbers->GetShapeSize(); ++i) total += values[i];
  OP_CHECK_IF(total < 0, OP_LOGE_FOR_INVALID_VALUE_WITH_REASON(context, "numbers", total, "their total is negative"),
              return ge::GRAPH_FAILED);
  *context->GetTilingData<AddTotalTiling>() = {static_cast<uint32_t>(shape.GetShapeSize()), static_cast<float>(total)};
  context->SetBlockDim(1);
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}

}  // namespace

DEVICE_IMPL_OP_OPTILING(AddTotal).Tiling(tile);
