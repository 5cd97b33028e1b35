// SPDX-License-Identifier: Apache-2.0
// Softmax and normalizations, and their gradients.
#include "aclnn.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var.h>

#include <numeric>

namespace cann_cpu::graph {
namespace {

Parameter only_axis(const char* name) {
  return [=](AclnnCall& c) {
    const auto axes = c.node.integers(name, {-1});
    reject_unless(axes.size() == 1, "a softmax over several dimensions");
    plain(axes[0])(c);
  };
}

at::Tensor softmax(NodeCall& n) {
  return like(0, n.flag("half_to_float", false) ? at::kFloat : n.in(0).scalar_type())(n);
}

// The dtype of a normalization's statistics: float for the half types.
at::ScalarType statistics_dtype(const at::Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

// A number for every vector of the last `normalized` dimensions of input 0.
at::Tensor statistics(NodeCall& n, size_t normalized) {
  auto shape = n.in(0).sizes().vec();
  reject_unless(normalized <= shape.size(), "a normalization over more dimensions than there are");
  std::fill(shape.end() - static_cast<ptrdiff_t>(normalized), shape.end(), 1);
  return new_tensor(shape, statistics_dtype(n.in(0)));
}
at::Tensor layer_statistics(NodeCall& n) { return statistics(n, n.integers(1).size()); }
Rule statistics_over(size_t gamma) {
  return [=](NodeCall& n) { return statistics(n, n.in(gamma).dim()); };
}

Parameter shape_of(size_t i) {
  return [=](AclnnCall& c) { c.arguments.array(c.node.in(i).sizes().vec()); };
}
const std::vector<bool> kAllOutputs = {true, true, true};

// Group normalization takes the sizes of its input apart: n, c, the rest.
Parameter sizes(size_t i) {
  return [=](AclnnCall& c) {
    const auto shape = c.node.in(i).sizes();
    reject_unless(shape.size() >= 2, "a normalization of fewer than two dimensions");
    plain(shape[0])(c);
    plain(shape[1])(c);
    plain(c10::multiply_integers(shape.slice(2)))(c);
  };
}
at::Tensor group_statistics(NodeCall& n) {
  return new_tensor({n.in(0).size(0), n.integer("num_groups")}, n.in(0).scalar_type());
}
// The statistics have the dtype of the parameters, where there are some.
at::Tensor silu_statistics(NodeCall& n) {
  const auto dtype = n.has(1) ? n.dtype(1) : n.has(2) ? n.dtype(2) : n.in(0).scalar_type();
  return new_tensor({n.in(0).size(0), n.integer("num_groups")}, dtype);
}
NodeFunction group_norm(double eps) {
  return aclnn("GroupNorm", in(0), in(1), in(2), sizes(0), integer("num_groups"), real("eps", eps), out(like(0)),
               out(group_statistics), out(group_statistics), ignore("data_format"), only("is_training", true));
}

// GroupNorm gives the variance where aclnnGroupNorm gives the inverse of the deviation.
Outputs group_norm_with_variance(NodeCall& n) {
  static const NodeFunction function = group_norm(1e-4);
  Outputs outputs = function(n);
  const auto groups = n.in(0).reshape({n.in(0).size(0), n.integer("num_groups"), -1}).to(at::kFloat);
  outputs[2] = groups.var(-1, /*unbiased=*/false).to(outputs[2].scalar_type());
  return outputs;
}

NodeFunction group_norm_gradient() {
  const auto wanted = [](AclnnCall& c) {
    std::vector<bool> mask;
    for (const char* name : {"dx_is_require", "dgamma_is_require", "dbeta_is_require"}) {
      mask.push_back(c.node.flag(name, true));
    }
    c.arguments.array(mask);
  };
  return aclnn("GroupNormBackward", in(0), in(3), in(1), in(2), in(4), sizes(3), integer("num_groups"), wanted,
               out(like(3)), out(like(4)), out(like(4)), only("data_format", "NCHW"));
}

// Batch normalization. With a mean and a variance that are given:
NodeFunction batch_norm_inference() {
  return aclnn("BatchNorm", in(0), in(1), in(2), in(3), in(4), plain(false), plain(0.), real("epsilon"), out(like(0)),
               absent(), absent());
}

NodeFunction batch_norm() {
  return aclnn("BatchNorm", in(0), in(1), in(2), out(1, written(3)), out(2, written(4)), flag("is_training", true),
               real("momentum", 0.1), real("epsilon", 1e-5), out(0, like(0)), out(3, vector_of(0)),
               out(4, vector_of(0)));
}

NodeFunction batch_norm_gradient() {
  return aclnn("BatchNormBackward", in(0), in(1), in(2), in(3), in(4), in(5), in(6), flag("is_training", true),
               real("epsilon", 1e-5), value(kAllOutputs), out(like(1)), out(like(2)), out(like(2)));
}

// The gradient in parts, as torchair asks for it: of scale and offset, of x where the statistics are the batch's, and
// of x where they are given. The first and the last are those of given statistics.
NodeFunction parameter_gradients() {
  return aclnn("BatchNormBackward", in(0), in(1), absent(), in(2), in(3), absent(), absent(), plain(false),
               real("epsilon", 1e-4), value(std::vector<bool>{false, true, true}), absent(), out(vector_of(1)),
               out(vector_of(1)));
}
Parameter only_input() { return value(std::vector<bool>{true, false, false}); }
NodeFunction batch_gradient() {
  const auto rstd = [](NodeCall& n) { return at::rsqrt(n.in(6) + n.real("epsilon", 1e-4)); };
  return aclnn("BatchNormBackward", in(0), in(1), in(4), absent(), absent(), in(5), computed(rstd), ignore(2),
               ignore(3), plain(true), real("epsilon", 1e-4), only_input(), out(like(1)), absent(), absent());
}
NodeFunction inference_gradient() {
  return aclnn("BatchNormBackward", in(0), in(0), in(1), in(2), in(2), absent(), absent(), plain(false),
               real("epsilon", 1e-4), only_input(), out(like(0)), absent(), absent());
}

// From the sum of dy * x: the sum of dy * (x - mean), and the gradient of the weight.
Outputs centered_sums(NodeCall& n) {
  const auto sum = n.in(1).to(at::kFloat) - n.in(0).to(at::kFloat) * n.in(2).to(at::kFloat);
  const auto dtype = n.in(0).scalar_type();
  return std::vector<at::Tensor>{sum.to(dtype), (sum * n.in(3).to(at::kFloat)).to(dtype)};
}

// dy, x, mean, invstd, weight, and the means of dy and of dy * (x - mean), all broadcast to x.
Outputs synchronized_gradient(NodeCall& n) {
  const auto wide = [&](size_t i) { return n.in(i).to(at::kFloat); };
  const auto slope = wide(3) * wide(3) * wide(6);
  const auto centered = wide(0) - wide(5) - (wide(1) - wide(2)) * slope;
  return (centered * wide(3) * wide(4)).to(n.in(1).scalar_type());
}

// Gives the variance where aclnnLayerNorm gives the inverse of the deviation.
Outputs layer_norm_with_variance(NodeCall& n) {
  const size_t rank = n.in(0).dim();
  const int64_t axis = wrapped(n.integer("begin_norm_axis", 0), rank);
  reject_unless(wrapped(n.integer("begin_params_axis", 0), rank) == axis,
                "a begin_params_axis other than begin_norm_axis");
  const size_t normalized = rank - axis;
  const Rule rows = [=](NodeCall& call) { return statistics(call, normalized); };
  const auto shape = n.in(0).sizes().slice(axis).vec();
  Outputs outputs = aclnn("LayerNorm", in(0), value(shape), in(1), in(2), real("epsilon", 1e-7), out(like(0)),
                          out(rows), out(rows))(n);
  std::vector<int64_t> axes(normalized);
  std::iota(axes.begin(), axes.end(), axis);
  outputs[2] = n.in(0).to(outputs[2].scalar_type()).var(axes, /*unbiased=*/false, /*keepdim=*/true);
  return outputs;
}

// Its inputs are dy, x, variance, mean and gamma. The epsilon is the operator's own: it has no attribute for one.
Outputs layer_norm_gradient_of_variance(NodeCall& n) {
  const auto rstd = [](NodeCall& call) { return at::rsqrt(call.in(2) + 1e-12); };
  return aclnn("LayerNormBackward", in(0), in(1), shape_of(4), in(3), computed(rstd), in(4), in(4), value(kAllOutputs),
               out(like(1)), out(like(4)), out(like(4)))(n);
}

}  // namespace

const NodeTable kNormalizationNodes = {
    {"SyncBatchNormGatherStats",
     aclnn("SyncBatchNormGatherStats", in(0), in(1), in(2), out(2, referenced(3)), out(3, referenced(4)),
           real32("momentum", 0.1), real32("eps", 1e-5), out(0, like(3)), out(1, like(3)))},
    {"SyncBatchNormBackwardReduce", centered_sums},
    {"SyncBatchNormBackwardElemt", synchronized_gradient},
    {"SoftmaxV2", aclnn("Softmax", in(0), only_axis("axes"), out(softmax))},
    {"LogSoftmaxV2", aclnn("LogSoftmax", in(0), only_axis("axes"), out(like(0)))},
    {"SoftmaxGrad", aclnn("SoftmaxBackward", in(1), in(0), only_axis("axes"), out(like(0)))},
    {"LogSoftmaxGrad", aclnn("LogSoftmaxBackward", in(0), in(1), only_axis("axis"), out(like(1)))},
    {"LayerNorm", layer_norm_with_variance, "", "begin_norm_axis begin_params_axis epsilon"},
    {"LayerNormGrad", layer_norm_gradient_of_variance},
    {"LayerNormV4", aclnn("LayerNorm", in(0), integers(1), optional(2), optional(3), real("epsilon", 1e-5),
                          out(like(0)), out(layer_statistics), out(layer_statistics))},
    // gamma is also passed as the bias: the bias's gradient needs only its shape.
    {"LayerNormGradV3", aclnn("LayerNormBackward", in(0), in(1), shape_of(4), in(3), in(2), in(4), in(4),
                              value(kAllOutputs), out(like(1)), out(like(4)), out(like(4)))},
    {"RmsNorm", aclnn("RmsNorm", in(0), in(1), real("epsilon", 1e-6), out(like(0)), out(statistics_over(1)))},
    {"RmsNormGrad", aclnn("RmsNormGrad", in(0), in(1), in(2), in(3), out(like(1)), out(like(3, at::kFloat)))},
    {"AddRmsNorm", aclnn("AddRmsNorm", in(0), in(1), in(2), real("epsilon", 1e-6), out(like(0)),
                         out(statistics_over(2)), out(like(0)))},
    {"AddRmsNormCast",
     aclnn("AddRmsNormCast", in(0), in(1), in(2), real("epsilon", 1e-6), out(like(0, at::kFloat)), out(like(0)),
           out(statistics_over(2)), out(like(0))),
     "", "epsilon"},
    {"GroupNormSilu", aclnn("GroupNormSilu", in(0), optional(1), optional(2), integer("num_groups"), real("eps", 1e-4),
                            out(like(0)), out(silu_statistics), out(silu_statistics))},
    {"ScaledMaskedSoftmax",
     aclnn("ScaledMaskedSoftmax", in(0), in(1), real("scale", 1.0), flag("fixed_triu_mask", false), out(like(0)))},
    {"ScaledMaskedSoftmaxGrad", aclnn("ScaledMaskedSoftmaxBackward", in(0), in(1), in(2), real("scale", 1.0),
                                      flag("fixed_triu_mask", false), out(like(0)))},
    {"MaskedSoftmaxWithRelPosBias", aclnn("MaskedSoftmaxWithRelPosBias", in(0), optional(1), in(2),
                                          real("scale_value", 1.0), integer("inner_precision_mode", 0), out(like(0)))},
    {"GroupNorm", group_norm_with_variance},
    {"GroupNormV2", group_norm(1e-5), "", "data_format eps is_training"},
    {"GroupNormGrad", group_norm_gradient(), "", "data_format dx_is_require dgamma_is_require dbeta_is_require"},
    {"BNInfer", batch_norm_inference()},
    {"BatchNormV3", batch_norm()},
    {"BatchNormGradV3", batch_norm_gradient(), "", "is_training epsilon"},
    {"BNTrainingUpdateGrad", parameter_gradients()},
    {"BN3DTrainingUpdateGrad", parameter_gradients()},
    {"BNTrainingReduceGrad", batch_gradient()},
    {"BNInferGrad", inference_gradient()},
};

}  // namespace cann_cpu::graph
