// SPDX-License-Identifier: Apache-2.0
// gert::StorageShape: a tensor's shape as its author sees it, and as it lies in memory.
#pragma once

#include "exe_graph/runtime/shape.h"

namespace gert {

class StorageShape {
 public:
  StorageShape() : reserved_() {}
  StorageShape(const std::initializer_list<int64_t>& origin, const std::initializer_list<int64_t>& storage)
      : origin_(origin), storage_(storage), reserved_() {}

  const Shape& GetOriginShape() const { return origin_; }
  const Shape& GetStorageShape() const { return storage_; }
  Shape& MutableOriginShape() { return origin_; }
  Shape& MutableStorageShape() { return storage_; }
  bool operator==(const StorageShape& other) const { return origin_ == other.origin_ && storage_ == other.storage_; }
  bool operator!=(const StorageShape& other) const { return !(*this == other); }

 private:
  Shape origin_;
  Shape storage_;
  uint8_t reserved_[40];
};

}  // namespace gert
