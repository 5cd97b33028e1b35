// SPDX-License-Identifier: Apache-2.0
// Lists among an operator's attributes.
#pragma once

#include <cstddef>

namespace gert {

class ContinuousVector {
 public:
  ContinuousVector() : ContinuousVector(nullptr, 0) {}
  ContinuousVector(const void* data, size_t size) : data_(data), size_(size) {}
  size_t GetSize() const { return size_; }
  const void* GetData() const { return data_; }

 private:
  const void* data_;
  size_t size_;
};

template <class T>
class TypedContinuousVector : public ContinuousVector {
 public:
  using ContinuousVector::ContinuousVector;
  const T* GetData() const { return static_cast<const T*>(ContinuousVector::GetData()); }
};

}  // namespace gert
