// SPDX-License-Identifier: Apache-2.0
// A tensor as it lies in memory, and the copy in rows of one that lies in FRACTAL_NZ.
#pragma once

#include <ATen/EmptyTensor.h>  // ATen/ops/empty.h costs twice the rest
#include <ATen/core/Tensor.h>

#include <vector>

#include "acl/acl_base.h"
#include "cann_cpu/fractal_nz.h"

namespace cann_cpu {

struct StoredTensor {
  at::Tensor tensor;           // ND: the strided view; FRACTAL_NZ: the contiguous blocks [..., N / c0, K / 16, 16, c0]
  aclFormat format;            // ACL_FORMAT_ND or ACL_FORMAT_FRACTAL_NZ
  std::vector<int64_t> shape;  // the logical one, [..., K, N]
};

inline StoredTensor in_rows(const at::Tensor& tensor) { return {tensor, ACL_FORMAT_ND, tensor.sizes().vec()}; }

// The elements of all matrices, row by row, matrix after matrix.
inline at::Tensor copy_rows(const FractalNz& matrices, const void* blocks, at::ScalarType dtype) {
  const at::Tensor rows(at::detail::empty_cpu({matrices.numel()}, dtype));
  matrices.to_rows(blocks, rows.mutable_data_ptr());
  return rows;
}

// The tensor in ND: itself, or a copy.
inline at::Tensor in_nd(const StoredTensor& stored) {
  if (stored.format == ACL_FORMAT_ND) return stored.tensor;
  const at::Tensor& blocks = stored.tensor;
  const FractalNz matrices(stored.shape, blocks.sizes().vec(), blocks.element_size());
  return copy_rows(matrices, blocks.const_data_ptr(), blocks.scalar_type()).view(stored.shape);
}

}  // namespace cann_cpu
