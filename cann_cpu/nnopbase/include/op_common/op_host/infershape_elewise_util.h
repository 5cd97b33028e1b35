// SPDX-License-Identifier: Apache-2.0
// The shape of an operator that does the same to each element.
#pragma once

#include "exe_graph/runtime/infer_shape_context.h"
#include "op_common/log/log.h"

namespace Ops::Base {

inline ge::graphStatus InferShape4Elewise(gert::InferShapeContext* context) {
  const gert::Shape* shape = context->GetInputShape(0);
  OP_CHECK_NULL_WITH_CONTEXT(context, shape);
  gert::Shape* out = context->GetOutputShape(0);
  OP_CHECK_NULL_WITH_CONTEXT(context, out);
  *out = *shape;
  return ge::GRAPH_SUCCESS;
}

}  // namespace Ops::Base
