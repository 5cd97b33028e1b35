// SPDX-License-Identifier: Apache-2.0
// Helpers for the parts of the node table.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/WrapDimMinimal.h>

#include "graph_engine/compiled_graph/node_call.h"
#include "node_types.h"

namespace cann_cpu::graph {

// The tensor of one element without dimensions, so that it does not add any to what it is combined with.
inline at::Tensor without_dimensions(const at::Tensor& tensor) {
  return tensor.numel() == 1 ? tensor.reshape({}) : tensor;
}

// Int4 has no tensors here: it is an int8 for each value, which Bitcast makes of and into eight in an int32.
bool is_int4(const NodeCall& n, const std::string& dtype);
at::Tensor int4_values(const at::Tensor& packed);  // [...] to [..., 8]
at::Tensor packed_int4(const at::Tensor& values);

// Rejects a node that asks for what is not implemented.
inline void reject_unless(bool condition, const char* what) {
  if (!condition) {
    throw GraphError(std::string(what) + " is not implemented");
  }
}

// The place of a dimension of so many, counted from the end where it is negative; throws unless it is one of them.
inline int64_t wrapped(int64_t dim, size_t rank) {
  return c10::maybe_wrap_dim(dim, static_cast<int64_t>(rank), /*wrap_scalar=*/false);
}

}  // namespace cann_cpu::graph
