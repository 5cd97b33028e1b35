// SPDX-License-Identifier: Apache-2.0
// What the parts of the node table are written with.
#pragma once

#include <ATen/core/Tensor.h>

#include "../node_call.h"
#include "../node_types.h"

namespace cann_cpu::graph {

// A node that is an ATen function of its first inputs.
template <auto function>
Outputs unary(NodeCall& n) {
  return function(n.in(0));
}
template <auto function>
Outputs binary(NodeCall& n) {
  return function(n.in(0), n.in(1));
}

// The number in a tensor of one element. A float is the number that its shortest decimal names, as for attributes.
inline at::Scalar scalar(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? at::Scalar(widened(tensor.item<float>())) : tensor.item();
}

// The tensor of one element without dimensions, so that it does not add any to what it is combined with.
inline at::Tensor without_dimensions(const at::Tensor& tensor) {
  return tensor.numel() == 1 ? tensor.reshape({}) : tensor;
}

// Refuses a node whose attribute has a value that is not implemented.
inline void refuse_unless(bool condition, const char* what) {
  if (!condition) {
    throw GraphError(std::string(what) + " is not implemented");
  }
}

}  // namespace cann_cpu::graph
