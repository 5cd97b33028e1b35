// SPDX-License-Identifier: Apache-2.0
// ge::Shape, ge::TensorDesc and ge::Tensor: what a graph's inputs and outputs are handed over in.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace ge {

class ShapeImpl;

class CANN_EXPORT Shape {
 public:
  Shape();
  ~Shape() = default;
  explicit Shape(const std::vector<int64_t>& dims);

  std::vector<int64_t> GetDims() const;
  size_t GetDimNum() const;
  int64_t GetDim(size_t idx) const;  // 0 where there is no such dimension
  graphStatus SetDim(size_t idx, int64_t value);

 private:
  std::shared_ptr<ShapeImpl> impl_;
};

class TensorDescImpl;

class CANN_EXPORT TensorDesc {
 public:
  TensorDesc();
  ~TensorDesc() = default;
  explicit TensorDesc(Shape shape, Format format = FORMAT_ND, DataType dt = DT_FLOAT);
  TensorDesc(const TensorDesc& desc);
  TensorDesc(TensorDesc&& desc);
  TensorDesc& operator=(const TensorDesc& desc);
  TensorDesc& operator=(TensorDesc&& desc);

  Shape GetShape() const;
  void SetShape(const Shape& shape);
  Format GetFormat() const;
  void SetFormat(Format format);
  Shape GetOriginShape() const;
  void SetOriginShape(const Shape& shape);
  void SetOriginFormat(Format format);
  DataType GetDataType() const;
  void SetDataType(DataType dt);
  void SetPlacement(Placement placement);
  Placement GetPlacement() const;
  void SetRealDimCnt(const int64_t real_dim_cnt);  // says nothing that the shape does not

 private:
  friend class Tensor;
  std::shared_ptr<TensorDescImpl> impl;
};

class TensorImpl;

class CANN_EXPORT Tensor {
 public:
  using DeleteFunc = std::function<void(uint8_t*)>;

  Tensor();
  explicit Tensor(const TensorDesc& tensor_desc);
  Tensor(const TensorDesc& tensor_desc, const uint8_t* data, size_t size);  // copies the data
  ~Tensor() = default;

  TensorDesc GetTensorDesc() const;
  graphStatus SetTensorDesc(const TensorDesc& tensor_desc);
  const uint8_t* GetData() const;
  uint8_t* GetData();
  size_t GetSize() const;
  // Gives the data away with the function that frees it.
  std::unique_ptr<uint8_t[], Tensor::DeleteFunc> ResetData();
  // Takes the data over; `deleter_func` frees it. ResetData does not copy the tensor's shared state first.
  graphStatus SetData(const uint8_t* data, size_t size);  // copies the data
  graphStatus SetData(uint8_t* data, size_t size, const Tensor::DeleteFunc& deleter_func);
  graphStatus ResetData(uint8_t* data, size_t size, const Tensor::DeleteFunc& deleter_func);

  graphStatus SetOriginShapeDimNum(const size_t dim_num);
  size_t GetOriginShapeDimNum() const;
  graphStatus SetOriginShapeDim(const size_t idx, const int64_t dim_value);
  graphStatus SetShapeDimNum(const size_t dim_num);
  size_t GetShapeDimNum() const;
  graphStatus SetShapeDim(const size_t idx, const int64_t dim_value);
  int64_t GetShapeDim(const size_t idx) const;
  graphStatus SetFormat(const ge::Format& format);
  ge::Format GetFormat() const;
  graphStatus SetDataType(const ge::DataType& dtype);
  ge::DataType GetDataType() const;
  graphStatus SetPlacement(const ge::Placement& placement);
  ge::Placement GetPlacement() const;

 private:
  std::shared_ptr<TensorImpl> impl;
};

}  // namespace ge
