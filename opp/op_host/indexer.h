// SPDX-License-Identifier: Apache-2.0
// What the definitions of the indexers have in common: their results are a number for each selected token.
#pragma once

#include "definition.h"

namespace opp {

// query and key come first; without values the second result is empty.
inline ge::graphStatus infer_selected(gert::InferShapeContext& context, int64_t sparse_count, bool with_values) {
  std::vector<int64_t> sizes = sizes_of(*context.GetRequiredInputShape(0));
  const gert::Shape& key = *context.GetRequiredInputShape(1);
  if (sizes.size() < 3 || key.GetDimNum() < 3) return reject("query and key must have 3 or 4 dimensions");
  sizes.end()[-2] = key.GetDim(key.GetDimNum() - 2);
  sizes.back() = sparse_count;
  *context.GetOutputShape(0) = shape_of(sizes);
  *context.GetOutputShape(1) = shape_of(with_values ? sizes : std::vector<int64_t>{0});
  return ge::GRAPH_SUCCESS;
}

}  // namespace opp
