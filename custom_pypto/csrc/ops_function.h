// SPDX-License-Identifier: Apache-2.0
// Operators as C++ functions: each goes through the dispatcher, so autograd and tracing see it.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace custom_pypto {

at::Tensor add_custom(const at::Tensor& self, const at::Tensor& other);

std::tuple<at::Tensor, at::Tensor> add_custom_backward(const at::Tensor& self);

}  // namespace custom_pypto
