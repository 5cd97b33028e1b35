// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/multilabel_margin_loss_forward.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/smooth_l1_loss_backward.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/soft_margin_loss_backward.h>

#include "table.h"

using namespace cann_cpu;

namespace {

// The gradient of each element's loss before the reduction.
at::Tensor unreduced(const at::Tensor& grad, const at::Tensor& self, int64_t reduction) {
  const auto each = grad.expand_as(self);
  return reduction == at::Reduction::Mean ? each / at::Scalar(self.numel()) : each;
}

}  // namespace

// ATen's out= functions use the output as scratch space for what they reduce, so these go without.
ACLNN(MseLoss,
      [](In self, In target, int64_t reduction, Out out) { assign(out, at::mse_loss(self, target, reduction)); });
ACLNN(MseLossBackward, [](In grad, In self, In target, int64_t reduction, Out out) {
  at::mse_loss_backward_out(out, grad, self, target, reduction);
});
ACLNN(L1Loss,
      [](In self, In target, int64_t reduction, Out out) { assign(out, at::l1_loss(self, target, reduction)); });
ACLNN(L1LossBackward, [](In grad, In self, In target, int64_t reduction, Out out) {
  assign(out, unreduced(grad, self, reduction) * (self - target).sgn());
});
ACLNN(SmoothL1Loss, [](In self, In target, int64_t reduction, float beta, Out out) {
  assign(out, at::smooth_l1_loss(self, target, reduction, beta));
});
ACLNN(SmoothL1LossBackward, [](In grad, In self, In target, int64_t reduction, float beta, Out out) {
  TORCH_CHECK(self.is_floating_point(), "self is ", self.scalar_type(), ", but must be floating-point");
  at::smooth_l1_loss_backward_out(out, grad, self, target, reduction, beta);
});
ACLNN(SoftMarginLoss, [](In self, In target, int64_t reduction, Out out) {
  assign(out, at::soft_margin_loss(self, target, reduction));
});
ACLNN(SoftMarginLossBackward, [](In grad, In self, In target, int64_t reduction, Out out) {
  at::soft_margin_loss_backward_out(out, grad, self, target, reduction);
});
ACLNN(KlDiv, [](In self, In target, int64_t reduction, bool log_target, Out out) {
  assign(out, at::kl_div(self, target, reduction, log_target));
});
ACLNN(KlDivBackward, [](In grad, In self, In target, int64_t reduction, bool log_target, Out out) {
  assign(out, -unreduced(grad, self, reduction) * (log_target ? target.exp() : target));
});
// d/dt of exp(t) * (t - x), or of t * (log(t) - x), which is 0 where t is 0.
ACLNN(KlDivTargetBackward, [](In grad, In self, In target, int64_t reduction, bool log_target, Out out) {
  const auto each = unreduced(grad, self, reduction);
  assign(out, log_target ? each * target.exp() * (target + at::Scalar(1) - self)
                         : (each * target.log() + each - each * self).masked_fill_(target.eq(0), 0));
});
ACLNN(BinaryCrossEntropy, [](In self, In target, OptionalIn weight, int64_t reduction, Out out) {
  assign(out, at::binary_cross_entropy(self, target, weight, reduction));
});
ACLNN(BinaryCrossEntropyBackward, [](In grad, In self, In target, OptionalIn weight, int64_t reduction, Out out) {
  at::binary_cross_entropy_backward_out(out, grad, self, target, weight, reduction);
});
ACLNN(BinaryCrossEntropyWithLogits,
      [](In self, In target, OptionalIn weight, OptionalIn pos_weight, int64_t reduction, Out out) {
        assign(out, at::binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction));
      });
// (sigmoid(x) * (1 + (pos_weight - 1) * t) - pos_weight * t) * grad, rounded as autograd rounds it on the CPU.
ACLNN(BinaryCrossEntropyWithLogitsBackward,
      [](In grad, In self, In target, OptionalIn weight, OptionalIn pos_weight, int64_t reduction, Out out) {
        const auto sigmoid = self.sigmoid();
        at::Tensor value;
        if (pos_weight.has_value()) {
          const auto positive = *pos_weight * target;
          value = ((positive + at::Scalar(1) - target) * sigmoid - positive) * grad;
        } else {
          value = (sigmoid - target) * grad;
        }
        if (weight.has_value()) value = value * *weight;
        assign(out, reduction == at::Reduction::Mean ? value / at::Scalar(self.numel()) : value);
      });
ACLNN(NLLLoss,
      [](In self, In target, OptionalIn weight, int64_t reduction, int64_t ignore_index, Out out, Out total_weight) {
        auto [value, total] = at::nll_loss_forward(self, target.to(at::kLong), weight, reduction, ignore_index);
        assign(out, value);
        assign(total_weight, total);
      });
ACLNN(NLLLossBackward, [](In grad, In self, In target, OptionalIn weight, int64_t reduction, int64_t ignore_index,
                          In total_weight, Out out) {
  at::nll_loss_backward_out(out, grad, self, target.to(at::kLong), weight, reduction, ignore_index, total_weight);
});
ACLNN(NLLLoss2d,
      [](In self, In target, OptionalIn weight, int64_t reduction, int64_t ignore_index, Out out, Out total_weight) {
        auto [value, total] = at::nll_loss2d_forward(self, target.to(at::kLong), weight, reduction, ignore_index);
        assign(out, value);
        assign(total_weight, total);
      });
ACLNN(NLLLoss2dBackward, [](In grad, In self, In target, OptionalIn weight, int64_t reduction, int64_t ignore_index,
                            In total_weight, Out out) {
  at::nll_loss2d_backward_out(out, grad, self, target.to(at::kLong), weight, reduction, ignore_index, total_weight);
});
namespace {

int64_t reduction_named(const std::string& name) {
  if (name.empty() || name == "mean") return at::Reduction::Mean;
  if (name == "sum") return at::Reduction::Sum;
  TORCH_CHECK(name == "none", "reduction must be none, mean or sum, got ", name);
  return at::Reduction::None;
}

// As CANN has it.
void check_smoothing(double label_smoothing, double zloss_scale, bool return_zloss = false) {
  TORCH_CHECK(label_smoothing == 0, "labelSmoothing must be 0, got ", label_smoothing);
  TORCH_CHECK(zloss_scale == 0 && !return_zloss,
              "the z-loss is not implemented: lseSquareScaleForZloss must be 0 and returnZloss false");
}

}  // namespace

ACLNN(CrossEntropyLoss, [](In input, In target, OptionalIn weight, Text reduction, int64_t ignore_index,
                           double label_smoothing, double zloss_scale, bool return_zloss, Out loss, Out log_prob,
                           Absent<"zloss", OptionalOut>, Absent<"lseForZloss", OptionalOut>) {
  check_smoothing(label_smoothing, zloss_scale, return_zloss);
  const auto logarithms = at::_log_softmax(in_float(input), 1, /*half_to_float=*/false);
  const auto value = std::get<0>(
      at::nll_loss_forward(logarithms, target.to(at::kLong), weight, reduction_named(reduction), ignore_index));
  assign(log_prob, logarithms);
  assign(loss, value.reshape(loss.sizes()));
});
ACLNN(CrossEntropyLossGrad, [](In grad, In log_prob, In target, OptionalIn weight, Absent<"gradZloss", OptionalIn>,
                               Absent<"lseForZloss", OptionalIn>, Text reduction_name, int64_t ignore_index,
                               double label_smoothing, double zloss_scale, Out out) {
  check_smoothing(label_smoothing, zloss_scale);
  const int64_t reduction = reduction_named(reduction_name);
  const auto logarithms = in_float(log_prob);
  const auto labels = target.to(at::kLong);
  // The weights of the labels that count, which is what a mean is divided by.
  const auto total = std::get<1>(at::nll_loss_forward(logarithms, labels, weight, at::Reduction::Mean, ignore_index));
  const auto dy = reduction == at::Reduction::None ? in_float(grad) : in_float(grad).reshape({});
  const auto each = at::nll_loss_backward(dy, logarithms, labels, weight, reduction, ignore_index, total);
  assign(out, at::_log_softmax_backward_data(each, logarithms, 1, logarithms.scalar_type()));
});
ACLNN(MultilabelMarginLoss, [](In self, In target, int64_t reduction, Out out, Out is_target) {
  auto [value, mask] = at::multilabel_margin_loss_forward(self, target.to(at::kLong), reduction);
  assign(out, value);
  assign(is_target, mask);
});
ACLNN(CtcLoss, [](In log_probs, In targets, Ints input_lengths, Ints target_lengths, int64_t blank, bool zero_infinity,
                  Out out, Out log_alpha) {
  auto [value, alpha] = at::_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
  assign(out, value);
  // torch_npu allocates for the longest target that fits; ATen for the longest there is.
  log_alpha.narrow(2, 0, alpha.size(2)).copy_(alpha);
});
ACLNN(CtcLossBackward, [](In grad, In log_probs, In targets, Ints input_lengths, Ints target_lengths, In loss,
                          In log_alpha, int64_t blank, bool zero_infinity, Out out) {
  assign(out, at::_ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank,
                                     zero_infinity));
});
