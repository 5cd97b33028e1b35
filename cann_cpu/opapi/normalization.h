// SPDX-License-Identifier: Apache-2.0
// Normalisation, for functions of several steps (normalization.cpp).
#pragma once

#include "table.h"

namespace cann_cpu {

// y = x * rstd * gamma with rstd = 1 / sqrt(mean(x ^ 2) + epsilon) over the dimensions of gamma, in float.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& gamma, double epsilon);

// The shape of the statistics of x that its last dimensions, as many as gamma has, are normalised with.
std::vector<int64_t> statistics_shape(const at::Tensor& x, const at::Tensor& gamma);

// Gamma has the last dimensions of x.
void check_normalized(const char* name, const at::Tensor& gamma, const char* x_name, const at::Tensor& x);

struct LayerNorm {
  at::Tensor value, mean, rstd;
};

// y = (x - mean) * rstd * gamma + beta with rstd = 1 / sqrt(variance + epsilon), in float.
LayerNorm layer_norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double epsilon);

struct RmsNormGradient {
  at::Tensor x, gamma;
};

// With n = x * rstd: dgamma = sum(dy * n), dx = rstd * (dy * gamma - n * mean(dy * gamma * n)).
RmsNormGradient rms_norm_gradient(In dy, In x, In rstd, In gamma);

// (x * rstd * gamma + beta) / scale + offset, or times the scale, rounded and saturated to the dtype of y
// (quantized_normalization.cpp).
struct QuantizedRmsNorm {
  In x, gamma;
  std::optional<at::Tensor> beta;
  In scale;
  std::optional<at::Tensor> offset;
  double epsilon;
  bool divides;
  Out y;
  std::optional<at::Tensor> rstd;

  CANN_EXPORT void check() const;
  CANN_EXPORT void run() const;
};

}  // namespace cann_cpu
