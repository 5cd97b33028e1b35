// SPDX-License-Identifier: Apache-2.0
// Reductions and scans along dimensions.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include "table.h"

using namespace cann_cpu;

ACLNN(ReduceSum, [](In self, Ints dims, bool keepdim, Dtype, Out out) {
  at::sum_out(out, self, dims, keepdim, out.scalar_type());
});
ACLNN(ReduceNansum, [](In self, Ints dims, bool keepdim, Dtype, Out out) {
  at::nansum_out(out, self, dims, keepdim, out.scalar_type());
});
ACLNN(Mean, [](In self, Ints dims, bool keepdim, Dtype, Out out) {
  at::mean_out(out, self, dims, keepdim, out.scalar_type());
});
ACLNN(Prod, [](In self, Dtype, Out out) { assign(out, at::prod(self, out.scalar_type())); });
ACLNN(ProdDim, [](In self, int64_t dim, bool keepdim, Dtype, Out out) {
  at::prod_out(out, self, dim, keepdim, out.scalar_type());
});
ACLNN(All, [](In self, Ints dims, bool keepdim, Out out) {
  assign(out, at::all(self, at::OptionalIntArrayRef(dims), keepdim));
});
ACLNN(Any, [](In self, Ints dims, bool keepdim, Out out) {
  assign(out, at::any(self, at::OptionalIntArrayRef(dims), keepdim));
});

ACLNN(Max, [](In self, Out out) { assign(out, at::max(self)); });
ACLNN(Min, [](In self, Out out) { assign(out, at::min(self)); });
ACLNN(MaxDim, [](In self, int64_t dim, bool keepdim, Out values, Out indices) {
  at::max_out(values, indices, self, dim, keepdim);
});
ACLNN(MinDim, [](In self, int64_t dim, bool keepdim, Out values, Out indices) {
  at::min_out(values, indices, self, dim, keepdim);
});
ACLNN(Amax, [](In self, Ints dims, bool keepdim, Out out) { at::amax_out(out, self, dims, keepdim); });
ACLNN(Amin, [](In self, Ints dims, bool keepdim, Out out) { at::amin_out(out, self, dims, keepdim); });
ACLNN(Aminmax, [](In self, Ints dims, bool keepdim, Out min, Out max) {
  at::amin_out(min, self, dims, keepdim);
  at::amax_out(max, self, dims, keepdim);
});
ACLNN(AminmaxDim,
      [](In self, int64_t dim, bool keepdim, Out min, Out max) { at::aminmax_out(min, max, self, dim, keepdim); });
ACLNN(AminmaxAll, [](In self, Out min, Out max) { at::aminmax_out(min, max, self); });
ACLNN(ArgMax, [](In self, int64_t dim, bool keepdim, Out out) { assign(out, at::argmax(self, dim, keepdim)); });
ACLNN(ArgMin, [](In self, int64_t dim, bool keepdim, Out out) { assign(out, at::argmin(self, dim, keepdim)); });
ACLNN(Median, [](In self, Out out) { assign(out, at::median(self)); });
ACLNN(NanMedian, [](In self, Out out) { assign(out, at::nanmedian(self)); });
ACLNN(MedianDim, [](In self, int64_t dim, bool keepdim, Out values, Out indices) {
  at::median_out(values, indices, self, dim, keepdim);
});
ACLNN(NanMedianDim, [](In self, int64_t dim, bool keepdim, Out values, Out indices) {
  at::nanmedian_out(values, indices, self, dim, keepdim);
});

ACLNN(VarCorrection, [](In self, Ints dims, int64_t correction, bool keepdim, Out out) {
  at::var_out(out, self, at::OptionalIntArrayRef(dims), at::Scalar(correction), keepdim);
});
ACLNN(Std, [](In self, Ints dims, int64_t correction, bool keepdim, Out out) {
  at::std_out(out, self, at::OptionalIntArrayRef(dims), at::Scalar(correction), keepdim);
});
ACLNN(VarMean, [](In self, Ints dims, int64_t correction, bool keepdim, Out var, Out mean) {
  at::var_mean_out(var, mean, self, at::OptionalIntArrayRef(dims), at::Scalar(correction), keepdim);
});
ACLNN(StdMeanCorrection, [](In self, Ints dims, int64_t correction, bool keepdim, Out std, Out mean) {
  at::std_mean_out(std, mean, self, at::OptionalIntArrayRef(dims), at::Scalar(correction), keepdim);
});
ACLNN(Norm, [](In self, Scalar p, Ints dims, bool keepdim, Out out) {
  at::norm_out(out, self, p, dims, keepdim, out.scalar_type());
});
ACLNN(LinalgVectorNorm, [](In self, Scalar ord, Ints dims, bool keepdim, Dtype, Out out) {
  at::linalg_vector_norm_out(out, self, ord, at::OptionalIntArrayRef(dims), keepdim, out.scalar_type());
});
ACLNN(LogSumExp, [](In self, Ints dims, bool keepdim, Out out) { at::logsumexp_out(out, self, dims, keepdim); });

ACLNN(Cumsum, [](In self, int64_t dim, Dtype, Out out) { at::cumsum_out(out, self, dim, out.scalar_type()); });
ACLNN(Cumprod,
      [](In self, Scalar dim, Dtype, Out out) { at::cumprod_out(out, self, dim.toLong(), out.scalar_type()); });
ACLNN(InplaceCumprod, [](Out self, Scalar dim, Dtype) { self.cumprod_(dim.toLong()); });
ACLNN(Cummax, [](In self, int64_t dim, Out values, Out indices) {
  auto [value, index] = at::cummax(self, dim);
  assign(values, value);
  assign(indices, index);
});
ACLNN(Cummin, [](In self, int64_t dim, Out values, Out indices) {
  auto [value, index] = at::cummin(self, dim);
  assign(values, value);
  assign(indices, index);
});

ACLNN(Renorm,
      [](In self, Scalar p, int64_t dim, Scalar max_norm, Out out) { at::renorm_out(out, self, p, dim, max_norm); });
ACLNN(InplaceRenorm, [](Out self, Scalar p, int64_t dim, Scalar max_norm) { self.renorm_(p, dim, max_norm); });
ACLNN(Cdist, [](In x1, In x2, float p, int64_t mode, Out out) {
  assign(out, at::_cdist_forward(in_float(x1), in_float(x2), p, mode));
});
ACLNN(CdistBackward, [](In grad, In x1, In x2, In distance, float p, Out out) {
  TORCH_CHECK(x1.dim() >= 2 && x2.dim() >= 2, "x1 and x2 must have at least 2 dimensions, not ", x1.dim(), " and ",
              x2.dim());
  auto sizes = at::infer_size(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  sizes.insert(sizes.end(), {x1.size(-2), x2.size(-2)});
  TORCH_CHECK(grad.sizes() == sizes && distance.sizes() == sizes, "the distances of x1 and x2 have shape ",
              at::IntArrayRef(sizes), "; the gradient has ", grad.sizes(), ", cdist ", distance.sizes());
  assign(out, at::_cdist_backward(in_float(grad).contiguous(), in_float(x1), in_float(x2), p, in_float(distance)));
});
ACLNN(Pdist, [](In self, float p, Out out) { assign(out, at::_pdist_forward(in_float(self).contiguous(), p)); });
ACLNN(Trace, [](In self, Out out) { assign(out, at::trace(self)); });
ACLNN(Histc, [](In self, int64_t bins, Scalar min, Scalar max, Out out) {
  TORCH_CHECK(out.numel() == bins, "bins is ", bins, ", the given output has ", out.numel());
  assign(out, at::histc(self.is_floating_point() ? self : self.to(at::kFloat), bins, min, max));
});
ACLNN_OF_VALUES(Bincount, [](In self, OptionalIn weights, int64_t minlength, Out out) {
  assign(out, at::bincount(self, weights, minlength));
});
