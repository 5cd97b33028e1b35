// SPDX-License-Identifier: Apache-2.0
// ATen's tensors and numbers over those of ACL.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Scalar.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "cann_cpu/acl_objects.h"
#include "cann_cpu/scalar_types.h"
#include "cann_cpu/stored_tensor.h"

namespace cann_cpu {

inline at::ScalarType scalar_type(aclDataType dtype) {
  const at::ScalarType type = scalar_type_or_undefined(dtype);
  TORCH_CHECK(type != at::ScalarType::Undefined, "dtype ", dtype_name(dtype), " is not supported on the CPU");
  return type;
}

inline at::Tensor view_of(const aclTensor& tensor, void* data) {
  const auto dtype = scalar_type(tensor.dtype);
  auto* first = static_cast<std::byte*>(data) + tensor.offset * static_cast<int64_t>(c10::elementSize(dtype));
  return at::from_blob(first, tensor.shape, tensor.strides, at::TensorOptions().dtype(dtype));
}

inline at::Scalar scalar_of(const aclScalar& scalar) {
  const void* value = scalar.value.data();
  switch (scalar.dtype) {
    case ACL_BOOL:
      return *static_cast<const bool*>(value);
    case ACL_INT8:
      return *static_cast<const int8_t*>(value);
    case ACL_UINT8:
      return *static_cast<const uint8_t*>(value);
    case ACL_INT16:
      return *static_cast<const int16_t*>(value);
    case ACL_UINT16:
      return *static_cast<const uint16_t*>(value);
    case ACL_INT32:
      return *static_cast<const int32_t*>(value);
    case ACL_UINT32:
      return static_cast<int64_t>(*static_cast<const uint32_t*>(value));
    case ACL_INT64:
      return *static_cast<const int64_t*>(value);
    case ACL_UINT64:
      return *static_cast<const uint64_t*>(value);
    case ACL_FLOAT16:
      return static_cast<float>(*static_cast<const at::Half*>(value));
    case ACL_BF16:
      return static_cast<float>(*static_cast<const at::BFloat16*>(value));
    case ACL_FLOAT:
      return *static_cast<const float*>(value);
    case ACL_DOUBLE:
      return *static_cast<const double*>(value);
    case ACL_COMPLEX64:
      return *static_cast<const c10::complex<float>*>(value);
    case ACL_COMPLEX128:
      return *static_cast<const c10::complex<double>*>(value);
    default:
      TORCH_CHECK(false, "scalars of dtype ", dtype_name(scalar.dtype), " are not supported on the CPU");
  }
}

// A tensor in FRACTAL_NZ that is no view of a part of its storage, nor a transposed one.
inline bool is_whole(const aclTensor& tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0; stride *= std::max<int64_t>(tensor.shape[i], 1)) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
  }
  return tensor.offset == 0 && tensor.storage_shape.size() == tensor.shape.size() + 2;
}

// The matrices in the storage of a tensor in FRACTAL_NZ: its strides and offset count in their elements, row by row.
inline FractalNz stored_matrices(const aclTensor& tensor) {
  const auto& storage = tensor.storage_shape;
  const size_t itemsize = dtype_size(tensor.dtype);
  if (is_whole(tensor)) return {tensor.shape, storage, itemsize};
  const size_t rank = tensor.shape.size();
  if (rank < 2 || storage.size() != rank + 2) {
    throw std::invalid_argument("is a view of FRACTAL_NZ that has another rank; cast the viewed tensor to ND first");
  }
  const auto& strides = tensor.strides;
  const int64_t columns = std::max(strides[rank - 1], strides[rank - 2]);
  std::vector<int64_t> shape(storage.begin(), storage.end() - 2);
  shape[rank - 1] = columns;
  shape[rank - 2] = rank == 2 || columns == 0 ? storage[rank - 1] * storage[rank] : strides[rank - 3] / columns;
  return {shape, storage, itemsize};
}

inline at::Tensor nd_copy_of(const aclTensor& tensor, const void* blocks) {
  const at::Tensor rows = copy_rows(stored_matrices(tensor), blocks, scalar_type(tensor.dtype));
  return rows.as_strided(tensor.shape, tensor.strides, tensor.offset);
}

}  // namespace cann_cpu
