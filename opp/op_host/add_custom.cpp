// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of AddCustom and AddCustomGrad: dtypes and shapes.
#include "op_host/add_custom.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace opp {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                                      at::kByte, at::kShort,    at::kInt,   at::kLong,   at::kBool};

void check_dtype(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(std::ranges::find(kDtypes, tensor.scalar_type()) != std::end(kDtypes), name,
              " must be floating point, integer or bool, but is ", tensor.scalar_type());
}

void check_like(const char* name, const at::Tensor& tensor, at::ScalarType dtype, at::IntArrayRef sizes) {
  TORCH_CHECK(tensor.scalar_type() == dtype, name, " must be ", dtype, ", but is ", tensor.scalar_type());
  TORCH_CHECK(tensor.sizes() == sizes, name, " must have shape ", sizes, ", but has ", tensor.sizes());
}

at::DimVector broadcast(const at::Tensor& self, const at::Tensor& other) {
  try {
    return at::infer_size_dimvector(self.sizes(), other.sizes());
  } catch (const c10::Error&) {
    TORCH_CHECK(false, "other must broadcast with self, which has shape ", self.sizes(), ", but has ", other.sizes());
  }
}

}  // namespace

void check_add_custom(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  check_dtype("self", self);
  TORCH_CHECK(other.scalar_type() == self.scalar_type(), "other must have self's dtype, ", self.scalar_type(),
              ", but is ", other.scalar_type());
  check_like("out", out, self.scalar_type(), broadcast(self, other));
}

void check_add_custom_grad(const at::Tensor& self, const at::Tensor& grad_self, const at::Tensor& grad_other) {
  check_dtype("self", self);
  check_like("gradSelfOut", grad_self, self.scalar_type(), self.sizes());
  check_like("gradOtherOut", grad_other, self.scalar_type(), self.sizes());
}

}  // namespace opp
