// SPDX-License-Identifier: Apache-2.0
// gert::TilingData: the bytes that a tiling function leaves for its kernel.
#pragma once

#include <cstddef>
#include <cstring>

namespace gert {

class TilingData {
 public:
  TilingData(void* data, size_t capacity) : data_(data), capacity_(capacity), size_(0) {}

  void* GetData() { return data_; }
  const void* GetData() const { return data_; }
  size_t GetCapacity() const { return capacity_; }
  size_t GetDataSize() const { return size_; }
  void SetDataSize(size_t size) { size_ = size; }
  // Room for a T after the present data; null if there is none.
  template <class T>
  T* Expand() {
    if (sizeof(T) > capacity_ - size_) return nullptr;
    void* at = static_cast<char*>(data_) + size_;
    size_ += sizeof(T);
    return static_cast<T*>(std::memset(at, 0, sizeof(T)));
  }
  template <class T>
  int Append(const T& value) {
    T* at = Expand<T>();
    if (at == nullptr) return -1;
    std::memcpy(static_cast<void*>(at), &value, sizeof(T));
    return 0;
  }

 private:
  void* data_;
  size_t capacity_;
  size_t size_;
};

}  // namespace gert
