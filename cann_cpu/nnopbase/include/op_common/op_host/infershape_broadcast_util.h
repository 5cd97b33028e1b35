// SPDX-License-Identifier: Apache-2.0
// The shape that shapes are broadcast to.
#pragma once

#include <algorithm>

#include "exe_graph/runtime/infer_shape_context.h"
#include "op_common/log/log.h"
#include "op_common/op_host/util/shape_util.h"

namespace Ops::Base {

// False if they do not go together. `out` may be one of them.
inline bool BroadcastShape(const gert::Shape* first, const gert::Shape* second, gert::Shape* out) {
  gert::Shape result;
  const size_t rank = std::max(first->GetDimNum(), second->GetDimNum());
  for (size_t i = 0; i < rank; ++i) {
    const auto of = [&](const gert::Shape& shape) {
      const size_t missing = rank - shape.GetDimNum();
      return i < missing ? 1 : shape.GetDim(i - missing);
    };
    const int64_t a = of(*first), b = of(*second);
    if (a != b && a != 1 && b != 1) return false;
    result.AppendDim(a == 1 ? b : a);
  }
  *out = result;
  return true;
}

inline ge::graphStatus InferShape4Broadcast(gert::InferShapeContext* context, size_t inputs = 2) {
  gert::Shape* out = context->GetOutputShape(0);
  OP_CHECK_NULL_WITH_CONTEXT(context, out);
  for (size_t i = 0; i < inputs; ++i) {
    const gert::Shape* shape = context->GetInputShape(i);
    OP_CHECK_NULL_WITH_CONTEXT(context, shape);
    if (i == 0) *out = *shape;
    OP_CHECK_IF(!BroadcastShape(out, shape, out),
                OP_LOGE(context, "input %zu, of shape %s, is not broadcast to %s", i, ToString(*shape).c_str(),
                        ToString(*out).c_str()),
                return ge::GRAPH_FAILED);
  }
  return ge::GRAPH_SUCCESS;
}

}  // namespace Ops::Base
