// aclnnSoftcap on the CPU, over ATen.
#include "aclnn_softcap.h"

#include <ATen/ops/tanh.h>

#include "cann_cpu/op.h"

namespace {

using at::Tensor;

void check_softcap(const Tensor& x, double cap, Tensor& out) {
  TORCH_CHECK(cap > 0, "cap must be above 0, but is ", cap);
  TORCH_CHECK(out.scalar_type() == x.scalar_type(), "out must have x's dtype, ", x.scalar_type(), ", but is ",
              out.scalar_type());
  TORCH_CHECK(out.sizes() == x.sizes(), "out must have x's shape, ", x.sizes(), ", but has ", out.sizes());
}

void softcap(const Tensor& x, double cap, Tensor& out) { out.copy_(at::tanh(x.to(at::kFloat).div(cap)).mul(cap)); }

}  // namespace

ACLNN_CHECKED(Softcap, check_softcap, softcap);
