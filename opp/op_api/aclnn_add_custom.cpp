// SPDX-License-Identifier: Apache-2.0
// aclnnAddCustom, over the Ascend C kernel where the vector unit has the dtype, else over ATen; aclnnAddCustomGrad.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include "aclnn_add_custom.h"
#include "aclnn_add_custom_grad.h"
#include "cann_cpu/op.h"
#include "op_api/launch.h"
#include "op_host/add_custom.h"
#include "op_host/add_custom_tiling.h"

extern "C" __global__ __aicore__ void add_custom(GM_ADDR self, GM_ADDR other, GM_ADDR out, GM_ADDR workspace,
                                                 GM_ADDR tiling);

namespace {

void check_add(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  opp::check_add_custom(self, other, out);
}

void check_grad(const at::Tensor& grad, at::Tensor& grad_self, at::Tensor& grad_other) {
  opp::check_add_custom_grad(grad, grad_self, grad_other);
}

// The dtypes that the vector unit adds.
std::optional<aclDataType> tiling_key(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ACL_FLOAT;
    case at::kHalf:
      return ACL_FLOAT16;
    case at::kBFloat16:
      return ACL_BF16;
    case at::kInt:
      return ACL_INT32;
    case at::kShort:
      return ACL_INT16;
    default:
      return std::nullopt;
  }
}

// All are contiguous and of one shape.
void run_kernel(aclDataType key, const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  opp::AddCustomTiling tiling = opp::tile_add_custom(out.numel(), out.element_size(), opp::cores());
  const opp::TensorMemory memory{{"self", self}, {"other", other}, {"out", out}};
  ICPU_SET_TILING_KEY(key);
  ICPU_RUN_KF(add_custom, tiling.blocks, opp::gm_address(self), opp::gm_address(other), opp::gm_address(out), nullptr,
              reinterpret_cast<GM_ADDR>(&tiling));
}

void add(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const auto key = tiling_key(out.scalar_type());
  if (!key) {
    at::add_out(out, self, other);
    return;
  }
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, self);
  at::assert_no_partial_overlap(out, other);
  const at::Tensor result = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  run_kernel(*key, self.expand(out.sizes()).contiguous(), other.expand(out.sizes()).contiguous(), result);
  if (!result.is_same(out)) out.copy_(result);
}

}  // namespace

ACLNN_CHECKED(AddCustom, check_add, add);

ACLNN_CHECKED(AddCustomGrad, check_grad, [](const at::Tensor& grad, at::Tensor& grad_self, at::Tensor& grad_other) {
  grad_self.copy_(grad);
  grad_other.copy_(grad);
});
