// SPDX-License-Identifier: Apache-2.0
// ge::TensorDesc and ge::Tensor.
#include "graph/tensor.h"

#include <algorithm>
#include <utility>

namespace ge {

class TensorDescImpl {
 public:
  std::vector<int64_t> dims;
  std::vector<int64_t> origin_dims;
  Format format = FORMAT_ND;
  Format origin_format = FORMAT_ND;
  DataType dtype = DT_FLOAT;
  Placement placement = kPlacementDevice;
};

TensorDesc::TensorDesc() : impl(std::make_shared<TensorDescImpl>()) {}
TensorDesc::TensorDesc(Shape shape, Format format, DataType dt) : TensorDesc() {
  SetShape(shape);
  SetFormat(format);
  SetDataType(dt);
}
TensorDesc::TensorDesc(const TensorDesc& desc) : impl(std::make_shared<TensorDescImpl>(*desc.impl)) {}
TensorDesc::TensorDesc(TensorDesc&& desc) : TensorDesc(static_cast<const TensorDesc&>(desc)) {}
TensorDesc& TensorDesc::operator=(const TensorDesc& desc) {
  *impl = *desc.impl;
  return *this;
}
TensorDesc& TensorDesc::operator=(TensorDesc&& desc) { return *this = static_cast<const TensorDesc&>(desc); }

Shape TensorDesc::GetShape() const { return Shape(impl->dims); }
void TensorDesc::SetShape(const Shape& shape) { impl->dims = shape.GetDims(); }
Format TensorDesc::GetFormat() const { return impl->format; }
void TensorDesc::SetFormat(Format format) { impl->format = format; }
Shape TensorDesc::GetOriginShape() const { return Shape(impl->origin_dims); }
void TensorDesc::SetOriginShape(const Shape& shape) { impl->origin_dims = shape.GetDims(); }
void TensorDesc::SetOriginFormat(Format format) { impl->origin_format = format; }
DataType TensorDesc::GetDataType() const { return impl->dtype; }
void TensorDesc::SetDataType(DataType dt) { impl->dtype = dt; }
void TensorDesc::SetPlacement(Placement placement) { impl->placement = placement; }
Placement TensorDesc::GetPlacement() const { return impl->placement; }
void TensorDesc::SetRealDimCnt(const int64_t) {}

class TensorImpl {
 public:
  ~TensorImpl() { release(); }
  void release() {
    if (data != nullptr && deleter) {
      deleter(data);
    }
    data = nullptr;
  }

  TensorDesc desc;
  uint8_t* data = nullptr;
  size_t size = 0;
  Tensor::DeleteFunc deleter;
};

Tensor::Tensor() : impl(std::make_shared<TensorImpl>()) {}
Tensor::Tensor(const TensorDesc& tensor_desc) : Tensor() { impl->desc = tensor_desc; }
Tensor::Tensor(const TensorDesc& tensor_desc, const uint8_t* data, size_t size) : Tensor(tensor_desc) {
  SetData(data, size);
}
TensorDesc Tensor::GetTensorDesc() const { return impl->desc; }
graphStatus Tensor::SetTensorDesc(const TensorDesc& tensor_desc) {
  impl->desc = tensor_desc;
  return GRAPH_SUCCESS;
}
const uint8_t* Tensor::GetData() const { return impl->data; }
uint8_t* Tensor::GetData() { return impl->data; }
size_t Tensor::GetSize() const { return impl->size; }

std::unique_ptr<uint8_t[], Tensor::DeleteFunc> Tensor::ResetData() {
  impl->size = 0;
  DeleteFunc deleter = impl->deleter ? impl->deleter : [](uint8_t*) {};
  return {std::exchange(impl->data, nullptr), std::move(deleter)};
}

graphStatus Tensor::SetData(const uint8_t* data, size_t size) {
  if (data == nullptr && size > 0) return GRAPH_FAILED;
  auto copy = std::make_unique<uint8_t[]>(size);
  std::copy_n(data, size, copy.get());
  return SetData(copy.release(), size, [](uint8_t* given) { delete[] given; });
}

graphStatus Tensor::SetData(uint8_t* data, size_t size, const Tensor::DeleteFunc& deleter_func) {
  const TensorDesc desc = impl->desc;
  impl = std::make_shared<TensorImpl>();
  impl->desc = desc;
  return ResetData(data, size, deleter_func);
}

graphStatus Tensor::ResetData(uint8_t* data, size_t size, const Tensor::DeleteFunc& deleter_func) {
  impl->release();
  impl->data = data;
  impl->size = size;
  impl->deleter = deleter_func;
  return GRAPH_SUCCESS;
}

namespace {

graphStatus set_dim(std::vector<int64_t>& dims, size_t index, int64_t value) {
  if (index >= dims.size()) {
    return GRAPH_FAILED;
  }
  dims[index] = value;
  return GRAPH_SUCCESS;
}

}  // namespace

graphStatus Tensor::SetOriginShapeDimNum(const size_t dim_num) {
  impl->desc.impl->origin_dims.resize(dim_num);
  return GRAPH_SUCCESS;
}
size_t Tensor::GetOriginShapeDimNum() const { return impl->desc.impl->origin_dims.size(); }
graphStatus Tensor::SetOriginShapeDim(const size_t idx, const int64_t dim_value) {
  return set_dim(impl->desc.impl->origin_dims, idx, dim_value);
}
graphStatus Tensor::SetShapeDimNum(const size_t dim_num) {
  impl->desc.impl->dims.resize(dim_num);
  return GRAPH_SUCCESS;
}
size_t Tensor::GetShapeDimNum() const { return impl->desc.impl->dims.size(); }
graphStatus Tensor::SetShapeDim(const size_t idx, const int64_t dim_value) {
  return set_dim(impl->desc.impl->dims, idx, dim_value);
}
int64_t Tensor::GetShapeDim(const size_t idx) const {
  const auto& dims = impl->desc.impl->dims;
  return idx < dims.size() ? dims[idx] : 0;
}
graphStatus Tensor::SetFormat(const ge::Format& format) {
  impl->desc.SetFormat(format);
  return GRAPH_SUCCESS;
}
ge::Format Tensor::GetFormat() const { return impl->desc.GetFormat(); }
graphStatus Tensor::SetDataType(const ge::DataType& dtype) {
  impl->desc.SetDataType(dtype);
  return GRAPH_SUCCESS;
}
ge::DataType Tensor::GetDataType() const { return impl->desc.GetDataType(); }
graphStatus Tensor::SetPlacement(const ge::Placement& placement) {
  impl->desc.SetPlacement(placement);
  return GRAPH_SUCCESS;
}
ge::Placement Tensor::GetPlacement() const { return impl->desc.GetPlacement(); }

}  // namespace ge
