// aclnnAddCustom and aclnnAddCustomGrad, over ATen's addition and copy.
#include <ATen/ops/add.h>

#include "aclnn_add_custom.h"
#include "aclnn_add_custom_grad.h"
#include "cann_cpu/op.h"
#include "op_host/add_custom.h"

namespace {

void check_add(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  opp::check_add_custom(self, other, out);
}

void check_grad(const at::Tensor& grad, at::Tensor& grad_self, at::Tensor& grad_other) {
  opp::check_add_custom_grad(grad, grad_self, grad_other);
}

}  // namespace

ACLNN_CHECKED(AddCustom, check_add,
              [](const at::Tensor& self, const at::Tensor& other, at::Tensor& out) { at::add_out(out, self, other); });

ACLNN_CHECKED(AddCustomGrad, check_grad, [](const at::Tensor& grad, at::Tensor& grad_self, at::Tensor& grad_other) {
  grad_self.copy_(grad);
  grad_other.copy_(grad);
});
