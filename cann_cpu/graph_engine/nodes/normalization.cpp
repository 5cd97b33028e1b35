// SPDX-License-Identifier: Apache-2.0
// Softmax and normalizations, and their gradients.
#include "table.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "../aclnn_function.h"
namespace cann_cpu::graph {
namespace {

int64_t only_axis(const NodeCall& n, const char* name) {
  const auto axes = n.integers(name, {-1});
  refuse_unless(axes.size() == 1, "a softmax over several dimensions");
  return axes[0];
}

// The dtype of a normalization's statistics: float for the half types.
at::ScalarType statistics_dtype(const at::Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

Outputs layer_norm(NodeCall& n) {
  const auto optional = [&](size_t i) { return n.has(i) ? std::optional(n.in(i)) : std::nullopt; };
  return at::native_layer_norm(n.in(0), n.integers(1), optional(2), optional(3), n.real("epsilon", 1e-5));
}

// gamma stands in for the bias too, whose gradient needs nothing but its shape.
Outputs layer_norm_gradient(NodeCall& n) {
  const auto& [dy, x, rstd, mean, gamma] = std::tie(n.in(0), n.in(1), n.in(2), n.in(3), n.in(4));
  return at::native_layer_norm_backward(dy, x, gamma.sizes(), mean, rstd, gamma, gamma, {true, true, true});
}

// eager's own function: there is none in ATen that gives both outputs.
Outputs rms_norm(NodeCall& n) {
  std::string reason;
  const auto function = find_aclnn("aclnnRmsNorm", reason);
  if (!function) {
    throw GraphError(reason);
  }
  const at::Tensor x = n.in(0).contiguous();
  const at::Tensor gamma = n.in(1).contiguous();
  auto statistics_shape = x.sizes().vec();
  for (int64_t d = x.dim() - gamma.dim(); d < x.dim(); ++d) {
    statistics_shape[d] = 1;
  }
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const at::Tensor rstd = at::empty(statistics_shape, x.options().dtype(statistics_dtype(x)));
  AclnnArguments arguments;
  arguments.tensor(x).tensor(gamma).real(n.real("epsilon", 1e-6)).tensor(y).tensor(rstd);
  arguments.call(*function, n.stream());
  return std::tuple(y, rstd);
}

}  // namespace

const NodeTable kNormalizationNodes = {
    {"SoftmaxV2",
     [](NodeCall& n) -> Outputs {
       return at::_softmax(n.in(0), only_axis(n, "axes"), n.flag("half_to_float", false));
     }},
    {"LogSoftmaxV2", [](NodeCall& n) -> Outputs { return at::_log_softmax(n.in(0), only_axis(n, "axes"), false); }},
    {"SoftmaxGrad",
     [](NodeCall& n) -> Outputs {
       return at::_softmax_backward_data(n.in(1), n.in(0), only_axis(n, "axes"), n.in(0).scalar_type());
     }},
    {"LogSoftmaxGrad",
     [](NodeCall& n) -> Outputs {
       return at::_log_softmax_backward_data(n.in(0), n.in(1), only_axis(n, "axis"), n.in(1).scalar_type());
     }},
    {"LayerNormV4", layer_norm},
    {"LayerNormGradV3", layer_norm_gradient},
    {"RmsNorm", rms_norm},
};

}  // namespace cann_cpu::graph
