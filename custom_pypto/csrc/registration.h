// SPDX-License-Identifier: Apache-2.0
// define: an operator's schema, and with it the kernels that follow from it; find_operator: to call one.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/macros/Export.h>
#include <torch/library.h>

namespace custom_pypto {

// Defines an operator in a library: TORCH_LIBRARY(my_ops, m) { define(m, "my_op(Tensor x) -> Tensor"); }. Tensors on
// the CPU are rejected by name. What the operator writes to, Tensor(a!), must not overlap itself, and counts as written
// under autograd: a backward that saved it before finds out. Its tag is pt2_compliant. The functions for NPU and Meta
// are the operator's own, and registered with it. So is a gradient, for AutogradPrivateUse1 and AutogradMeta; without
// one a backward raises, through results and through what is written.
C10_EXPORT void define(torch::Library& m, const char* schema);

// Rejects a call under a transform of torch.func (grad, vjp, jvp, ...), by the operator's name: to be called before
// torch::autograd::Function::apply, which cannot be used there.
C10_EXPORT void reject_transforms(const char* op);

// An operator in the dispatcher, so that autograd and tracing see the call:
// find_operator<decltype(f)>("my_ops::my_op"), f being one of its functions.
template <typename Function>
c10::TypedOperatorHandle<Function> find_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Function>();
}

}  // namespace custom_pypto
