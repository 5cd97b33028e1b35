// SPDX-License-Identifier: Apache-2.0
// The argument checks of AddCustom and AddCustomGrad.
#pragma once

#include <ATen/core/Tensor.h>

namespace opp {

// Throw c10::Error unless dtypes and shapes fit together; read no tensor's data.
void check_add_custom(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out);
void check_add_custom_grad(const at::Tensor& self, const at::Tensor& grad_self, const at::Tensor& grad_other);

}  // namespace opp
