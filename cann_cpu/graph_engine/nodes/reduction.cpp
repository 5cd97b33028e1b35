// SPDX-License-Identifier: Apache-2.0
// Reductions and scans.
#include "nodes/aclnn.h"

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

std::vector<int64_t> reduced_shape(at::IntArrayRef sizes, const std::vector<int64_t>& axes, bool keep) {
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
    const bool reduced = std::any_of(
        axes.begin(), axes.end(), [&](int64_t axis) { return (axis < 0 ? axis + sizes.size() : axis) == size_t(d); });
    if (!reduced || keep) {
      shape.push_back(reduced ? 1 : sizes[d]);
    }
  }
  return shape;
}

// An output without the reduced dimensions, or with 1 for them where the attribute `keep` says so.
Rule reduced(Axes axes, const char* keep) {
  return [=](NodeCall& n) {
    return new_tensor(reduced_shape(n.in(0).sizes(), axes(n), n.flag(keep, false)), n.in(0).scalar_type());
  };
}
Rule reduced(Axes axes, const char* keep, at::ScalarType dtype) {
  return [=](NodeCall& n) { return new_tensor(reduced_shape(n.in(0).sizes(), axes(n), n.flag(keep, false)), dtype); };
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
  static const NodeFunction function = accumulation("Mean", [](NodeCall& n) {
    const auto dtype = n.attribute("dtype") == nullptr ? n.in(0).scalar_type() : n.dtype("dtype");
    return reduced(axes_in(1), "keep_dims", dtype)(n);
  });
  const bool skips = n.flag("noop_with_empty_axes", true);
  const bool nothing = skips && n.integers(1).empty() && n.in(0).dim() > 0;
  n.ignore("dtype");
  n.ignore("keep_dims");
  return nothing ? Outputs(n.in(0)) : function(n);
}

// One dimension after the other, the last first.
NodeFunction product(Axes axes) {
  return [=](NodeCall& n) -> Outputs {
    at::Tensor x = n.in(0);
    const bool keep = n.flag("keep_dims", false);
    auto given = axes(n);
    for (int64_t& axis : given) {
      axis = axis < 0 ? axis + x.dim() : axis;
    }
    std::sort(given.rbegin(), given.rend());
    for (const int64_t axis : given) {
      const at::Tensor y = new_tensor(reduced_shape(x.sizes(), {axis}, keep), x.scalar_type());
      x = aclnn("ProdDim", value(x), plain(axis), plain(int64_t{keep}), plain(kAsOutput),
                out([&](NodeCall&) { return y; }))(n)[0];
    }
    return x;
  };
}

NodeFunction extremum_with_index(const char* name) {
  return aclnn(name, in(0), integer("dimension", 0), flag("keep_dims", false),
               out(1, reduced(axis_in("dimension"), "keep_dims")),
               out_as(0, at::kInt, reduced(axis_in("dimension"), "keep_dims", at::kLong)));
}

NodeFunction index_of_extremum(const char* name) {
  return aclnn(name, in(0), integer(1), plain(int64_t{false}), out([](NodeCall& n) {
                 const auto shape = reduced_shape(n.in(0).sizes(), {n.integer(1)}, false);
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
