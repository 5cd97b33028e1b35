// SPDX-License-Identifier: Apache-2.0
// The memory layout of gert::Tensor, which torchair's fast execution path passes by value.
//
// It was measured in torchair's binary, _npu_graph_executor.so of the torch_npu wheel: the size is the stride of its
// vectors of tensors, the offsets are those at which AtNpuTensorToGeTensor, UpdateTensorData and
// AssembleDimsToShape store what their names say, the values those that they store.
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

enum TensorPlacement : int32_t { kOnDeviceHbm = 0, kOnHost = 1, kFollowing = 2 };  // kFollowing: after the tensor
enum TensorOperateType : int32_t { kGetTensorAddress = 0, kFreeTensor = 1, kPlusShareCount = 2 };

// Handles the memory of an address that is not a plain pointer.
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

static_assert(sizeof(Tensor) == 752);
static_assert(sizeof(StorageShape) == 536);
static_assert(offsetof(Tensor, data_type) == 636);
static_assert(offsetof(Tensor, tensor_data) == 640);
static_assert(offsetof(TensorData, manager) == 8 && offsetof(TensorData, size) == 16);
static_assert(offsetof(TensorData, placement) == 24);

}  // namespace gert
