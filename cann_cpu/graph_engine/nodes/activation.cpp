// SPDX-License-Identifier: Apache-2.0
// Activations and losses, and their gradients.
#include "aclnn.h"

#include <ATen/core/Reduction.h>

namespace cann_cpu::graph {
namespace {

static_assert(at::Reduction::None == 0 && at::Reduction::Mean == 1 && at::Reduction::Sum == 2);

Parameter reduction() {
  return [](AclnnCall& c) {
    const std::vector<std::string> order = {"mean", "sum", "none"};
    constexpr int64_t kReductions[] = {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None};
    plain(kReductions[c.node.choice("reduction", order)])(c);
  };
}
bool is_reduced(const NodeCall& n) { return n.text("reduction", "mean") != "none"; }

at::Tensor loss(NodeCall& n) { return is_reduced(n) ? new_tensor({}, n.in(0).scalar_type()) : promoted({0, 1})(n); }
at::Tensor nll_loss(NodeCall& n) {
  const at::Tensor& x = n.in(0);
  return new_tensor(is_reduced(n) ? at::IntArrayRef() : n.in(1).sizes(), x.scalar_type());
}
at::Tensor one_number(NodeCall& n) { return new_tensor({}, n.in(0).scalar_type()); }

at::Tensor halved(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  int64_t& size = shape[wrapped(n.integer("dim", -1), shape.size())];
  reject_unless(size % 2 == 0, "halving a dimension of odd size");
  size /= 2;
  return new_tensor(shape, n.in(0).scalar_type());
}

// aclnnHardsigmoid's slope is 1 / 6, which models shorten in two ways.
Parameter slope() { return one_of("alpha", {0.16666666f, 0.16666667f}); }

}  // namespace

const NodeTable kActivationNodes = {
    {"Relu", unary("Relu")},
    {"ReluGrad", aclnn("ThresholdBackward", in(0), in(1), value(kZero), out(like(0)))},
    {"Sigmoid", unary("Sigmoid")},
    {"SigmoidGrad", aclnn("SigmoidBackward", in(1), in(0), only("complex_conj", false), out(like(0)))},
    {"TanhGrad", aclnn("TanhBackward", in(1), in(0), only("complex_conj", false), out(like(0)))},
    {"Swish", aclnn("Silu", in(0), only("scale", 1.f), out(like(0)))},
    // The result of the forward pass is not needed.
    {"SwishGrad", aclnn("SiluBackward", in(0), in(1), ignore(2), only("scale", 1.f), out(like(0)))},
    {"Gelu", unary("Gelu")},
    {"GeluGrad", aclnn("GeluBackward", in(0), in(1), ignore(2), out(like(0)))},
    {"GeluV2", aclnn("GeluV2", in(0), choice("approximate", {"none", "tanh"}), out(like(0))), "", "approximate"},
    {"GeluGradV2", aclnn("GeluBackwardV2", in(0), in(1), text("approximate", "none"), out(like(0))), "", "approximate"},
    {"FastGelu", unary("FastGelu")},
    {"FastGeluGrad", aclnn("FastGeluBackward", in(0), in(1), out(like(1)))},
    {"LeakyRelu", aclnn("LeakyRelu", in(0), scalar("negative_slope", 0), out(like(0)))},
    {"LeakyReluGrad",
     aclnn("LeakyReluBackward", in(0), in(1), scalar("negative_slope", 0), plain(false), out(like(0)))},
    {"PRelu", aclnn("Prelu", in(0), in(1), out(like(0)))},
    {"PReluGrad", aclnn("PreluBackward", in(0), in(1), in(2), out(like(1)), out(like(1)))},
    {"Elu", aclnn("Elu", in(0), scalar("alpha", 1), scalar("scale", 1), scalar("input_scale", 1), out(like(0)))},
    {"EluGradV2", aclnn("EluBackward", in(0), scalar("alpha", 1), scalar("scale", 1), scalar("input_scale", 1),
                        flag("is_result", false), in(1), out(like(0)))},
    {"HardSwish", unary("Hardswish")},
    {"HardSwishGrad", aclnn("HardswishBackward", in(0), in(1), out(like(0)))},
    {"HardSigmoid", aclnn("Hardsigmoid", in(0), slope(), only("beta", 0.5f), out(like(0)))},
    {"HardSigmoidGrad", aclnn("HardsigmoidBackward", in(0), in(1), slope(), only("beta", 0.5f), out(like(0)))},
    {"HardtanhGrad",
     aclnn("HardtanhBackward", in(1), in(0), scalar("min_val", -1), scalar("max_val", 1), out(like(0)))},
    {"Mish", unary("Mish")},
    {"SoftplusV2", aclnn("Softplus", in(0), scalar("beta", 1), scalar("threshold", 20), out(like(0)))},
    {"SoftplusV2Grad",
     aclnn("SoftplusBackward", in(0), in(1), scalar("beta", 1), scalar("threshold", 20), out(like(0)))},
    {"GLU", aclnn("Glu", in(0), integer("dim", -1), out(halved))},
    {"GLUGrad", aclnn("GluBackward", in(0), in(1), integer("dim", -1), out(like(1)))},
    {"GeGluV2",
     aclnn("GeGluV3", in(0), integer("dim", -1), integer("approximate", 1), flag("activate_left", false), out(halved),
           out(halved)),
     "", "dim approximate activate_left"},
    {"ClippedSwiglu",
     aclnn("ClippedSwiglu", in(0), optional(1), integer("dim", -1), real("alpha", 1.702), real("limit", 7.0),
           real("bias", 1.0), flag("interleaved", true), out(halved)),
     "group_index", "dim alpha limit bias interleaved"},
    {"SwiGlu", aclnn("SwiGlu", in(0), integer("dim", -1), out(halved))},
    {"SwiGluGrad", aclnn("SwiGluGrad", in(0), in(1), integer("dim", -1), out(like(1)))},
    {"LogSigmoid", aclnn("LogSigmoid", in(0), out(like(0)))},
    {"LogSigmoidGrad", aclnn("LogSigmoidBackward", in(0), in(1), in(1), out(like(0)))},
    {"ThresholdV2", aclnn("Threshold", in(0), number(1), number(2, 0), out(like(0)))},
    {"ThresholdGradV2D", aclnn("ThresholdBackward", in(0), in(1), scalar("threshold"), out(like(0)))},
    {"MseLoss", aclnn("MseLoss", in(0), in(1), reduction(), out(loss))},
    {"MseLossGrad", aclnn("MseLossBackward", in(2), in(0), in(1), reduction(), out(promoted({0, 1})))},
    {"NLLLoss", aclnn("NLLLoss", in(0), in(1), optional(2), reduction(), integer("ignore_index", -100), out(nll_loss),
                      out(one_number))},
    {"NLLLossGrad", aclnn("NLLLossBackward", in(1), in(0), in(2), optional(3), reduction(),
                          integer("ignore_index", -100), in(4), out(like(0)))},
};

}  // namespace cann_cpu::graph
