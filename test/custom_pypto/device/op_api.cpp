// SPDX-License-Identifier: Apache-2.0
// An operator package that has of add_custom what the vector unit adds, and no gradient.
#include <ATen/ops/add.h>

#include "cann_cpu/op.h"

namespace {

void check_vector_unit(const at::Tensor& self, const at::Tensor&, at::Tensor&) {
  switch (self.scalar_type()) {
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kInt:
    case at::kShort:
      return;
    default:
      TORCH_CHECK(false, "the vector unit does not add ", self.scalar_type());
  }
}

}  // namespace

ACLNN_CHECKED(AddCustom, check_vector_unit,
              [](const at::Tensor& self, const at::Tensor& other, at::Tensor& out) { at::add_out(out, self, other); });
