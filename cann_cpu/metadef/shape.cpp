// SPDX-License-Identifier: Apache-2.0
// ge::Shape, which tiling functions use as well.
#include "graph/tensor.h"

namespace ge {

class ShapeImpl {
 public:
  std::vector<int64_t> dims;
};

Shape::Shape() : Shape(std::vector<int64_t>()) {}
Shape::Shape(const std::vector<int64_t>& dims) : impl_(std::make_shared<ShapeImpl>(ShapeImpl{dims})) {}
std::vector<int64_t> Shape::GetDims() const { return impl_ == nullptr ? std::vector<int64_t>() : impl_->dims; }
size_t Shape::GetDimNum() const { return impl_ == nullptr ? 0 : impl_->dims.size(); }
int64_t Shape::GetDim(size_t idx) const { return idx < GetDimNum() ? impl_->dims[idx] : 0; }
graphStatus Shape::SetDim(size_t idx, int64_t value) {
  if (idx >= GetDimNum()) return GRAPH_FAILED;
  impl_->dims[idx] = value;
  return GRAPH_SUCCESS;
}

}  // namespace ge
