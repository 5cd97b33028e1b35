// SPDX-License-Identifier: Apache-2.0
// Activations and losses, and their gradients.
#include "table.h"

#include <ATen/ops/_prelu_kernel.h>
#include <ATen/ops/_prelu_kernel_backward.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/glu_backward.h>
#include <ATen/ops/hardsigmoid_backward.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/threshold_backward.h>

namespace cann_cpu::graph {
namespace {

using namespace at::_ops;

int64_t reduction(const NodeCall& n) {
  const std::string name = n.text("reduction", "mean");
  refuse_unless(name == "none" || name == "mean" || name == "sum", "this reduction");
  return name == "none" ? at::Reduction::None : name == "mean" ? at::Reduction::Mean : at::Reduction::Sum;
}

std::optional<at::Tensor> weight(const NodeCall& n, size_t i) {
  return n.has(i) ? std::optional(n.in(i)) : std::nullopt;
}

}  // namespace

const NodeTable kActivationNodes = {
    {"Relu", unary<relu::call>},
    {"ReluGrad", [](NodeCall& n) -> Outputs { return at::threshold_backward(n.in(0), n.in(1), 0); }},
    {"Sigmoid", unary<sigmoid::call>},
    {"SigmoidGrad", [](NodeCall& n) -> Outputs { return at::sigmoid_backward(n.in(1), n.in(0)); }},
    {"TanhGrad", [](NodeCall& n) -> Outputs { return at::tanh_backward(n.in(1), n.in(0)); }},
    {"Swish",
     [](NodeCall& n) -> Outputs {
       refuse_unless(n.real("scale", 1) == 1, "a scale");
       return silu::call(n.in(0));
     }},
    {"SwishGrad",
     [](NodeCall& n) -> Outputs {
       refuse_unless(n.real("scale", 1) == 1, "a scale");
       return at::silu_backward(n.in(0), n.in(1));
     }},
    {"Gelu", [](NodeCall& n) -> Outputs { return at::gelu(n.in(0)); }},
    {"GeluGrad", [](NodeCall& n) -> Outputs { return at::gelu_backward(n.in(0), n.in(1)); }},
    {"GeluV2", [](NodeCall& n) -> Outputs { return at::gelu(n.in(0), n.text("approximate", "none")); }, "",
     "approximate"},
    {"GeluGradV2",
     [](NodeCall& n) -> Outputs { return at::gelu_backward(n.in(0), n.in(1), n.text("approximate", "none")); }, "",
     "approximate"},
    {"LeakyRelu", [](NodeCall& n) -> Outputs { return at::leaky_relu(n.in(0), n.real("negative_slope", 0)); }},
    {"LeakyReluGrad",
     [](NodeCall& n) -> Outputs {
       return at::leaky_relu_backward(n.in(0), n.in(1), n.real("negative_slope", 0), /*self_is_result=*/false);
     }},
    {"PRelu", [](NodeCall& n) -> Outputs { return at::_prelu_kernel(n.in(0), n.in(1)); }},
    {"PReluGrad", [](NodeCall& n) -> Outputs { return at::_prelu_kernel_backward(n.in(0), n.in(1), n.in(2)); }},
    {"Elu",
     [](NodeCall& n) -> Outputs {
       return at::elu(n.in(0), n.real("alpha", 1), n.real("scale", 1), n.real("input_scale", 1));
     }},
    {"EluGradV2",
     [](NodeCall& n) -> Outputs {
       return at::elu_backward(n.in(0), n.real("alpha", 1), n.real("scale", 1), n.real("input_scale", 1),
                               n.flag("is_result", false), n.in(1));
     }},
    {"HardSwish", unary<hardswish::call>},
    {"HardSwishGrad", binary<hardswish_backward::call>},
    {"HardSigmoid", unary<hardsigmoid::call>},
    {"HardSigmoidGrad", [](NodeCall& n) -> Outputs { return at::hardsigmoid_backward(n.in(0), n.in(1)); }},
    {"HardtanhGrad",
     [](NodeCall& n) -> Outputs {
       return at::hardtanh_backward(n.in(1), n.in(0), n.real("min_val", -1), n.real("max_val", 1));
     }},
    {"Mish", unary<mish::call>},
    {"SoftplusV2",
     [](NodeCall& n) -> Outputs { return at::softplus(n.in(0), n.real("beta", 1), n.real("threshold", 20)); }},
    {"SoftplusV2Grad",
     [](NodeCall& n) -> Outputs {
       return at::softplus_backward(n.in(0), n.in(1), n.real("beta", 1), n.real("threshold", 20));
     }},
    {"GLU", [](NodeCall& n) -> Outputs { return at::glu(n.in(0), n.integer("dim", -1)); }},
    {"GLUGrad", [](NodeCall& n) -> Outputs { return at::glu_backward(n.in(0), n.in(1), n.integer("dim", -1)); }},
    {"LogSigmoid", [](NodeCall& n) -> Outputs { return std::get<0>(at::log_sigmoid_forward(n.in(0))); }},
    {"LogSigmoidGrad",
     [](NodeCall& n) -> Outputs {
       return at::log_sigmoid_backward(n.in(0), n.in(1), std::get<1>(at::log_sigmoid_forward(n.in(1))));
     }},
    {"ThresholdV2",
     [](NodeCall& n) -> Outputs {
       return at::threshold(n.in(0), scalar(n.in(1)), n.has(2) ? scalar(n.in(2)) : at::Scalar(0));
     }},
    {"ThresholdGradV2D",
     [](NodeCall& n) -> Outputs { return at::threshold_backward(n.in(0), n.in(1), n.real("threshold", 0)); }},
    {"MseLoss", [](NodeCall& n) -> Outputs { return at::mse_loss(n.in(0), n.in(1), reduction(n)); }},
    {"MseLossGrad",
     [](NodeCall& n) -> Outputs { return at::mse_loss_backward(n.in(2), n.in(0), n.in(1), reduction(n)); }},
    {"NLLLoss",
     [](NodeCall& n) -> Outputs {
       return at::nll_loss_forward(n.in(0), n.in(1).to(at::kLong), weight(n, 2), reduction(n),
                                   n.integer("ignore_index", -100));
     }},
    {"NLLLossGrad",
     [](NodeCall& n) -> Outputs {
       return at::nll_loss_backward(n.in(1), n.in(0), n.in(2).to(at::kLong), weight(n, 3), reduction(n),
                                    n.integer("ignore_index", -100), n.in(4));
     }},
};

}  // namespace cann_cpu::graph
