// SPDX-License-Identifier: Apache-2.0
// Reductions and scans.
#include "table.h"

#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/min.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/std.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <limits>

namespace cann_cpu::graph {
namespace {

// The dimensions to reduce: no list means all.
std::vector<int64_t> dimensions(std::vector<int64_t> axes, const at::Tensor& x) {
  if (axes.empty()) {
    for (int64_t d = 0; d < x.dim(); ++d) {
      axes.push_back(d);
    }
  }
  return axes;
}

std::vector<int64_t> axes(const NodeCall& n) { return dimensions(n.integers(1), n.in(0)); }
bool keep(const NodeCall& n) { return n.flag("keep_dims", false); }

at::Tensor product(at::Tensor x, std::vector<int64_t> axes, bool keep) {
  for (int64_t& axis : axes) {
    axis = axis < 0 ? axis + x.dim() : axis;
  }
  std::sort(axes.rbegin(), axes.rend());
  for (const int64_t axis : axes) {
    x = at::prod(x, axis, keep, x.scalar_type());
  }
  return x;
}

// Index first, and of 32 bits.
Outputs index_and_value(std::tuple<at::Tensor, at::Tensor> value_and_index) {
  auto& [value, index] = value_and_index;
  return std::tuple(index.to(at::kInt), value);
}

void refuse_partial_scan(const NodeCall& n) {
  refuse_unless(!n.flag("exclusive", false) && !n.flag("reverse", false), "an exclusive or reverse scan");
}

// torchair writes the infinite norms as the limits of 32-bit integers.
at::Scalar norm_order(const NodeCall& n) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double p = n.real("p", 2);
  return p >= std::numeric_limits<int32_t>::max()   ? kInfinity
         : p <= std::numeric_limits<int32_t>::min() ? -kInfinity
                                                    : p;
}

}  // namespace

const NodeTable kReductionNodes = {
    {"ReduceSum", [](NodeCall& n) -> Outputs { return at::sum(n.in(0), axes(n), keep(n), n.in(0).scalar_type()); }},
    {"ReduceMean", [](NodeCall& n) -> Outputs { return at::mean(n.in(0), axes(n), keep(n)); }},
    {"ReduceMeanWithCast",
     [](NodeCall& n) -> Outputs {
       return at::mean(n.in(0), axes(n), keep(n), n.dtype("dtype", n.in(0).scalar_type()));
     }},
    {"ReduceMax", [](NodeCall& n) -> Outputs { return at::amax(n.in(0), axes(n), keep(n)); }},
    {"ReduceMin", [](NodeCall& n) -> Outputs { return at::amin(n.in(0), axes(n), keep(n)); }},
    {"ReduceProd", [](NodeCall& n) -> Outputs { return product(n.in(0), axes(n), keep(n)); }},
    {"ReduceProdD",
     [](NodeCall& n) -> Outputs { return product(n.in(0), dimensions(n.integers("axes", {}), n.in(0)), keep(n)); }},
    {"ReduceAll", [](NodeCall& n) -> Outputs { return at::all(n.in(0), axes(n), keep(n)); }},
    {"ReduceAny", [](NodeCall& n) -> Outputs { return at::any(n.in(0), axes(n), keep(n)); }},
    {"ReduceLogSumExp", [](NodeCall& n) -> Outputs { return at::logsumexp(n.in(0), axes(n), keep(n)); }},
    {"ReduceStdV2",
     [](NodeCall& n) -> Outputs {
       return at::std_mean(n.in(0), dimensions(n.integers("dim", {}), n.in(0)), at::Scalar(n.integer("correction", 1)),
                           n.flag("keepdim", false));
     }},
    // The mean that comes with it is not needed.
    {"ReduceStdWithMean",
     [](NodeCall& n) -> Outputs {
       refuse_unless(!n.flag("invert", false), "the inverse of the deviation");
       return at::std(n.in(0), dimensions(n.integers("dim", {}), n.in(0)), at::Scalar(n.integer("correction", 1)),
                      n.flag("keepdim", false));
     }},
    {"ArgMaxV2",
     [](NodeCall& n) -> Outputs { return at::argmax(n.in(0), n.integer(1)).to(n.dtype("dtype", at::kLong)); }},
    {"ArgMin",
     [](NodeCall& n) -> Outputs { return at::argmin(n.in(0), n.integer(1)).to(n.dtype("dtype", at::kLong)); }},
    {"ArgMaxWithValue", [](NodeCall& n) { return index_and_value(at::max(n.in(0), n.integer("dimension"), keep(n))); }},
    {"ArgMinWithValue", [](NodeCall& n) { return index_and_value(at::min(n.in(0), n.integer("dimension"), keep(n))); }},
    {"Cumsum",
     [](NodeCall& n) -> Outputs {
       refuse_partial_scan(n);
       return at::cumsum(n.in(0), n.integer(1), n.in(0).scalar_type());
     }},
    {"Cumprod",
     [](NodeCall& n) -> Outputs {
       refuse_partial_scan(n);
       return at::cumprod(n.in(0), n.integer(1), n.in(0).scalar_type());
     }},
    {"LpNormV2",
     [](NodeCall& n) -> Outputs {
       return at::linalg_vector_norm(n.in(0), norm_order(n), dimensions(n.integers("axes", {}), n.in(0)),
                                     n.flag("keepdim", false));
     }},
};

}  // namespace cann_cpu::graph
