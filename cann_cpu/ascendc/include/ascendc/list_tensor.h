// SPDX-License-Identifier: Apache-2.0
// A list of tensors as one argument: in device memory lie the offset of the addresses, then for each tensor its number
// of dimensions, its index and its dimensions, then the addresses.
#pragma once

#include "ascendc/tensor.h"

namespace AscendC {

template <class T>
class TensorDesc {
 public:
  // Where GetDesc writes the dimensions to.
  void SetShapeAddr(uint64_t* shape) { shape_ = shape; }
  uint64_t GetDim() const { return dimensions_; }
  uint64_t GetIndex() const { return index_; }
  uint64_t GetShape(uint32_t dimension) const { return shape_[dimension]; }
  T* GetDataPtr() const { return data_; }
  GlobalTensor<T> GetDataObj() const {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(data_);
    return tensor;
  }

 private:
  friend class ListTensorDesc;

  uint64_t* shape_ = nullptr;
  uint64_t dimensions_ = 0;
  uint64_t index_ = 0;
  T* data_ = nullptr;
};

class ListTensorDesc {
 public:
  ListTensorDesc() = default;
  ListTensorDesc(__gm__ void* data, uint32_t length = ~uint32_t{0}, uint32_t shape_size = ~uint32_t{0}) {
    Init(data, length, shape_size);
  }
  void Init(__gm__ void* data, uint32_t /*length*/ = ~uint32_t{0}, uint32_t /*shape_size*/ = ~uint32_t{0}) {
    begin_ = static_cast<const std::byte*>(data);
    const auto offset = cpu::load<uint64_t>(begin_);
    addresses_ = begin_ + offset;
    count_ = 0;
    for (const std::byte* at = begin_ + sizeof(uint64_t); at < addresses_; ++count_) at = next(at);
  }

  template <class T>
  void GetDesc(TensorDesc<T>& desc, uint32_t index) const {
    const std::byte* at = begin_ + sizeof(uint64_t);
    for (uint32_t i = 0; i < index; ++i) at = next(at);
    desc.dimensions_ = cpu::load<uint32_t>(at);
    desc.index_ = cpu::load<uint32_t>(at + sizeof(uint32_t));
    for (uint64_t i = 0; desc.shape_ != nullptr && i < desc.dimensions_; ++i) {
      desc.shape_[i] = cpu::load<uint64_t>(at + (i + 1) * sizeof(uint64_t));
    }
    desc.data_ = GetDataPtr<T>(index);
  }
  template <class T>
  T* GetDataPtr(uint32_t index) const {
    return reinterpret_cast<T*>(cpu::load<uint64_t>(addresses_ + index * sizeof(uint64_t)));
  }
  uint32_t GetSize() const { return count_; }

 private:
  static const std::byte* next(const std::byte* at) { return at + (1 + cpu::load<uint32_t>(at)) * sizeof(uint64_t); }

  const std::byte* begin_ = nullptr;
  const std::byte* addresses_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace AscendC
