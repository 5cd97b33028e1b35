// SPDX-License-Identifier: Apache-2.0
// The memory layout of gert::Tensor, which torchair's fast execution path passes by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace gert {

struct Shape {
  static constexpr size_t kMaxDimNum = 25;
  size_t dim_num;
  int64_t dims[kMaxDimNum];
  uint8_t reserved[40];
};

struct StorageShape {
  Shape origin_shape;
  Shape storage_shape;
  uint8_t reserved[40];
};

struct ExpandDimsType {
  uint64_t mask;
  uint8_t reserved[40];
};

struct StorageFormat {
  ge::Format origin_format;
  ge::Format storage_format;
  ExpandDimsType expand_dims_type;
  uint8_t reserved[40];
};

enum TensorPlacement : int32_t { kOnDeviceHbm, kOnHost, kFollowing, kOnDeviceP2p, kTensorPlacementEnd };
enum TensorOperateType : int32_t { kGetTensorAddress, kFreeTensor, kPlusShareCount };

// What is done with the memory behind an address that is no plain pointer.
using TensorAddrManager = ge::graphStatus (*)(void* address, TensorOperateType operation, void** out);

struct TensorData {
  void* address;
  TensorAddrManager manager;
  size_t size;
  TensorPlacement placement;
  uint32_t reserved_0;
  uint8_t reserved_1[40];

  void* pointer() const {
    void* result = address;
    if (manager != nullptr && address != nullptr && manager(address, kGetTensorAddress, &result) != ge::GRAPH_SUCCESS) {
      return nullptr;
    }
    return result;
  }
};

class Tensor {
 public:
  StorageShape storage_shape;
  StorageFormat storage_format;
  uint8_t reserved_0[4];
  ge::DataType data_type;
  TensorData tensor_data;
  uint8_t reserved_1[40];
};

}  // namespace gert
