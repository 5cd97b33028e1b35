// SPDX-License-Identifier: Apache-2.0
// Shapes that are not known when a graph is made: a dimension is -1, and a shape whose rank is not known is [-2].
#pragma once

#include <string>

#include "exe_graph/runtime/shape.h"

namespace Ops::Base {

inline void SetUnknownRank(gert::Shape& shape) { shape = {-2}; }
inline bool IsUnknownRank(const gert::Shape& shape) { return shape.GetDimNum() == 1 && shape.GetDim(0) == -2; }
inline void SetUnknownShape(int64_t rank, gert::Shape& shape) {
  shape.SetDimNum(static_cast<size_t>(rank));
  for (size_t i = 0; i < shape.GetDimNum(); ++i) shape.SetDim(i, -1);
}
// Returns whether every dimension is unknown, -1.
inline bool IsUnknownShape(const gert::Shape& shape) {
  for (size_t i = 0; i < shape.GetDimNum(); ++i) {
    if (shape.GetDim(i) != -1) return false;
  }
  return shape.GetDimNum() != 0;
}

inline std::string ToString(const gert::Shape& shape) {
  std::string text;
  for (size_t i = 0; i < shape.GetDimNum(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape.GetDim(i));
  return "[" + text + "]";
}

}  // namespace Ops::Base
