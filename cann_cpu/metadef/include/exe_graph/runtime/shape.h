// SPDX-License-Identifier: Apache-2.0
// gert::Shape: the dimensions of a tensor, by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace gert {

class Shape {
 public:
  static constexpr size_t kMaxDimNum = 25;
  static constexpr int64_t kInvalidDimValue = INT64_MIN;

  Shape() : dim_num_(0), dims_(), reserved_() {}
  Shape(const std::initializer_list<int64_t>& dims) : Shape() {
    for (const int64_t dim : dims) AppendDim(dim);
  }

  bool operator==(const Shape& other) const {
    if (dim_num_ != other.dim_num_) return false;
    for (size_t i = 0; i < dim_num_; ++i) {
      if (dims_[i] != other.dims_[i]) return false;
    }
    return true;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }

  // The number of elements.
  int64_t GetShapeSize() const {
    int64_t size = 1;
    for (size_t i = 0; i < dim_num_; ++i) size *= dims_[i];
    return size;
  }
  bool IsScalar() const { return dim_num_ == 0; }
  void SetScalar() { dim_num_ = 0; }
  size_t GetDimNum() const { return dim_num_; }
  void SetDimNum(size_t dim_num) { dim_num_ = dim_num <= kMaxDimNum ? dim_num : kMaxDimNum; }
  int64_t GetDim(size_t i) const { return i < dim_num_ ? dims_[i] : kInvalidDimValue; }
  void SetDim(size_t i, int64_t dim) {
    if (i < kMaxDimNum) dims_[i] = dim;
  }
  Shape& AppendDim(int64_t dim) {
    if (dim_num_ < kMaxDimNum) dims_[dim_num_++] = dim;
    return *this;
  }
  int64_t operator[](size_t i) const { return GetDim(i); }
  int64_t& operator[](size_t i) { return dims_[i]; }

 private:
  size_t dim_num_;
  int64_t dims_[kMaxDimNum];
  uint8_t reserved_[40];
};

}  // namespace gert
