// SPDX-License-Identifier: Apache-2.0
// gert::Tensor: shape, format, dtype and, for what inference and tiling may read, the data.
#pragma once

#include "exe_graph/runtime/storage_shape.h"
#include "graph/types.h"

namespace gert {

class StorageFormat {
 public:
  StorageFormat() : StorageFormat(ge::FORMAT_ND, ge::FORMAT_ND) {}
  StorageFormat(ge::Format origin, ge::Format storage) : origin_(origin), storage_(storage) {}
  ge::Format GetOriginFormat() const { return origin_; }
  ge::Format GetStorageFormat() const { return storage_; }

 private:
  ge::Format origin_;
  ge::Format storage_;
};

// The description of a tensor before it exists.
class CompileTimeTensorDesc {
 public:
  CompileTimeTensorDesc() : CompileTimeTensorDesc(ge::DT_UNDEFINED, StorageFormat()) {}
  CompileTimeTensorDesc(ge::DataType type, StorageFormat format) : type_(type), format_(format) {}
  ge::DataType GetDataType() const { return type_; }
  const StorageFormat& GetFormat() const { return format_; }
  ge::Format GetOriginFormat() const { return format_.GetOriginFormat(); }
  ge::Format GetStorageFormat() const { return format_.GetStorageFormat(); }

 private:
  ge::DataType type_;
  StorageFormat format_;
};

class Tensor {
 public:
  Tensor() : data_(nullptr), bytes_(0) {}
  Tensor(const StorageShape& shape, const CompileTimeTensorDesc& desc, const void* data, size_t bytes)
      : shape_(shape), desc_(desc), data_(data), bytes_(bytes) {}

  int64_t GetShapeSize() const { return shape_.GetStorageShape().GetShapeSize(); }
  const StorageShape& GetShape() const { return shape_; }
  const Shape& GetOriginShape() const { return shape_.GetOriginShape(); }
  const Shape& GetStorageShape() const { return shape_.GetStorageShape(); }
  const CompileTimeTensorDesc& GetDesc() const { return desc_; }
  ge::DataType GetDataType() const { return desc_.GetDataType(); }
  const StorageFormat& GetFormat() const { return desc_.GetFormat(); }
  ge::Format GetOriginFormat() const { return desc_.GetOriginFormat(); }
  ge::Format GetStorageFormat() const { return desc_.GetStorageFormat(); }
  size_t GetSize() const { return bytes_; }
  // Null where the values are not known on the host: only those of inputs with ValueDepend are.
  template <class T>
  const T* GetData() const {
    return static_cast<const T*>(data_);
  }
  const void* GetAddr() const { return data_; }

 private:
  StorageShape shape_;
  CompileTimeTensorDesc desc_;
  const void* data_;
  size_t bytes_;
};

}  // namespace gert
