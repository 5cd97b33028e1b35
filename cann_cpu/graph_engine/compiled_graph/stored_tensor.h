// SPDX-License-Identifier: Apache-2.0
// Memory of the caller as a tensor.
#pragma once

#include <vector>

#include "cann_cpu/stored_tensor.h"
#include "graph/types.h"

namespace cann_cpu::graph {

// A tensor of element type dtype at the address. Throws GraphError when it is stored neither row by row nor in
// FRACTAL_NZ.
StoredTensor stored_tensor(void* memory, ge::DataType dtype, const std::vector<int64_t>& shape, ge::Format format,
                           const std::vector<int64_t>& storage_shape);

}  // namespace cann_cpu::graph
