// SPDX-License-Identifier: Apache-2.0
// The operator package of an NPU as docs/device_build.md describes it, as far as add_custom goes: what the vector unit
// adds, of one shape, and no gradient.
#include <ATen/ops/add.h>

#include "cann_cpu/op.h"

namespace {

void check_vector_unit(const at::Tensor& self, const at::Tensor& other, at::Tensor&) {
  TORCH_CHECK(self.sizes() == other.sizes(), "the kernel does not broadcast");
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
