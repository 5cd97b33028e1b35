// SPDX-License-Identifier: Apache-2.0
#include "stored_tensor.h"

#include <ATen/ops/from_blob.h>

#include <string>

#include "graph_engine/model/dtypes.h"
#include "graph_engine/model/model.h"

namespace cann_cpu::graph {
namespace {

at::Tensor view(void* memory, const std::vector<int64_t>& dims, ge::DataType dtype) {
  return at::from_blob(memory, dims, at::TensorOptions().dtype(scalar_type(dtype)));
}

}  // namespace

StoredTensor stored_tensor(void* memory, ge::DataType dtype, const std::vector<int64_t>& shape, ge::Format format,
                           const std::vector<int64_t>& storage_shape) {
  if (format == ge::FORMAT_FRACTAL_NZ) {
    FractalNz(shape, storage_shape, c10::elementSize(scalar_type(dtype)));
    return {view(memory, storage_shape, dtype), ACL_FORMAT_FRACTAL_NZ, shape};
  }
  if (shape != storage_shape) {
    throw GraphError(std::string("tensors of format ") + ge::GetFormatName(format) +
                     " are not supported: only tensors stored row by row, and FRACTAL_NZ");
  }
  return {view(memory, shape, dtype), ACL_FORMAT_ND, shape};
}

}  // namespace cann_cpu::graph
