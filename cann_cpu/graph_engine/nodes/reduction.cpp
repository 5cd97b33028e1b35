// SPDX-License-Identifier: Apache-2.0
// Reductions and scans.
#include "aclnn.h"

#include <ATen/native/ReduceOpsUtils.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace cann_cpu::graph {
namespace {

using Axes = std::function<std::vector<int64_t>(NodeCall&)>;

// The dimensions of input 0 to reduce: no list means all.
std::vector<int64_t> all_unless_given(NodeCall& n, std::vector<int64_t> axes) {
  if (axes.empty()) {
    axes.resize(n.in(0).dim());
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}
Axes axes_in(size_t i) {
  return [=](NodeCall& n) { return all_unless_given(n, n.integers(i)); };
}
Axes axes_in(const char* name) {
  return [=](NodeCall& n) { return all_unless_given(n, n.integers(name, {})); };
}
Axes axis_in(const char* name) {
  return [=](NodeCall& n) { return std::vector<int64_t>{n.integer(name)}; };
}

Parameter reduced_axes(Axes axes) {
  return [=](AclnnCall& c) { c.arguments.array(axes(c.node)); };
}

// An output without the reduced dimensions, or with 1 for each if the attribute `keep` is set.
Rule reduced(Axes axes, const char* keep, at::ScalarType dtype) {
  return [=](NodeCall& n) {
    return new_tensor(at::meta::get_reduction_shape(n.in(0), axes(n), n.flag(keep, false)), dtype);
  };
}
Rule reduced(Axes axes, const char* keep) {
  return [=](NodeCall& n) { return reduced(axes, keep, n.in(0).scalar_type())(n); };
}

constexpr int64_t kAsOutput = 0;  // an aclDataType that repeats the output's

NodeFunction reduction(const char* name) {
  return aclnn(name, in(0), reduced_axes(axes_in(1)), flag("keep_dims", false), out(reduced(axes_in(1), "keep_dims")));
}
NodeFunction test(const char* name) {
  return aclnn(name, in(0), reduced_axes(axes_in(1)), flag("keep_dims", false),
               out(reduced(axes_in(1), "keep_dims", at::kBool)));
}
// aclnn functions that take the dtype of the result as well.
NodeFunction accumulation(const char* name, const Rule& result) {
  return aclnn(name, in(0), reduced_axes(axes_in(1)), flag("keep_dims", false), plain(kAsOutput), out(result));
}

// Whether the mean of no dimensions is the tensor itself.
Outputs mean(NodeCall& n) {
  static const auto dtype = [](NodeCall& n) { return n.dtype("dtype", n.in(0).scalar_type()); };
  static const NodeFunction function =
      accumulation("Mean", [](NodeCall& n) { return reduced(axes_in(1), "keep_dims", dtype(n))(n); });
  const bool skips = n.flag("noop_with_empty_axes", true);
  const bool nothing = skips && n.integers(1).empty() && n.in(0).dim() > 0;
  n.ignore("keep_dims");
  return nothing ? Outputs(n.in(0).to(dtype(n))) : function(n);
}

// One dimension after the other, the last first.
NodeFunction product(Axes axes) {
  return [=](NodeCall& n) -> Outputs {
    at::Tensor x = n.in(0);
    const bool keep = n.flag("keep_dims", false);
    auto given = axes(n);
    for (int64_t& axis : given) {
      axis = c10::maybe_wrap_dim(axis, x.dim());
    }
    std::sort(given.rbegin(), given.rend());
    for (const int64_t axis : given) {
      const at::Tensor y = new_tensor(at::meta::get_reduction_shape(x, axis, keep), x.scalar_type());
      x = aclnn("ProdDim", value(x), plain(axis), plain(keep), plain(kAsOutput),
                out([&](NodeCall&) { return y; }))(n)[0];
    }
    return x;
  };
}

NodeFunction extremum_with_index(const char* name) {
  return aclnn(name, in(0), integer("dimension"), flag("keep_dims", false),
               out(1, reduced(axis_in("dimension"), "keep_dims")),
               out_as(0, at::kInt, reduced(axis_in("dimension"), "keep_dims", at::kLong)));
}

NodeFunction index_of_extremum(const char* name) {
  return aclnn(name, in(0), integer(1), plain(false), out([](NodeCall& n) {
                 const auto shape = at::meta::get_reduction_shape(n.in(0), n.integer(1), /*keepdim=*/false);
                 return new_tensor(shape, n.dtype("dtype", at::kLong));
               }));
}

NodeFunction scan(const char* name, const Parameter& axis) {
  return aclnn(name, in(0), axis, plain(kAsOutput), only("exclusive", false), only("reverse", false), out(like(0)));
}

// torchair writes the infinite norms as the limits of 32-bit integers.
void norm_order(AclnnCall& c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double p = c.node.real("p", 2);
  c.arguments.scalar(p >= std::numeric_limits<int32_t>::max()   ? kInfinity
                     : p <= std::numeric_limits<int32_t>::min() ? -kInfinity
                                                                : p);
}

}  // namespace

const NodeTable kReductionNodes = {
    {"ReduceSum", accumulation("ReduceSum", reduced(axes_in(1), "keep_dims"))},
    {"ReduceMean", mean},
    {"ReduceMeanWithCast", mean},
    {"ReduceMax", reduction("Amax")},
    {"ReduceMin", reduction("Amin")},
    {"ReduceProd", product(axes_in(1))},
    {"ReduceProdD", product(axes_in("axes"))},
    {"ReduceAll", test("All")},
    {"ReduceAny", test("Any")},
    {"ReduceLogSumExp", reduction("LogSumExp")},
    // The mean is given whether is_mean_out asks for it or not.
    {"ReduceStdV2",
     aclnn("StdMeanCorrection", in(0), reduced_axes(axes_in("dim")), integer("correction", 1), flag("keepdim", false),
           out(reduced(axes_in("dim"), "keepdim")), out(reduced(axes_in("dim"), "keepdim")), ignore("is_mean_out"))},
    // The mean that comes with it is not needed; correction says what unbiased says; epsilon is the inverse's.
    {"ReduceStdWithMean", aclnn("Std", in(0), reduced_axes(axes_in("dim")), integer("correction", 1),
                                flag("keepdim", false), out(reduced(axes_in("dim"), "keepdim")), ignore(1),
                                only("invert", false), only("unbiased", true), ignore("epsilon"))},
    {"ArgMaxV2", index_of_extremum("ArgMax")},
    {"ArgMin", index_of_extremum("ArgMin")},
    {"ArgMaxWithValue", extremum_with_index("MaxDim")},
    {"ArgMinWithValue", extremum_with_index("MinDim")},
    {"Cumsum", scan("Cumsum", integer(1))},
    {"Cumprod", scan("Cumprod", number(1))},
    // epsilon, for a norm that something is divided by, changes nothing in the norm itself.
    {"LpNormV2",
     aclnn("LinalgVectorNorm", in(0), Parameter(norm_order), reduced_axes(axes_in("axes")), flag("keepdim", false),
           plain(kAsOutput), out(reduced(axes_in("axes"), "keepdim")), one_of("epsilon", {0.f, 1e-12f}))},
};

}  // namespace cann_cpu::graph
