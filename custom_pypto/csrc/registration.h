// define: an operator's schema, and with it the kernels that follow from it.
#pragma once

#include <c10/macros/Export.h>
#include <torch/library.h>

namespace custom_pypto {

// Defines an operator in a library: TORCH_LIBRARY(my_ops, m) { define(m, "my_op(Tensor x) -> Tensor"); }. Tensors on
// the CPU are refused by name. What the operator writes to, Tensor(a!), counts as written under autograd: a backward
// that saved it before finds out. The functions for NPU, Meta and gradients are the operator's own, and registered with
// it.
C10_EXPORT void define(torch::Library& m, const char* schema);

}  // namespace custom_pypto
