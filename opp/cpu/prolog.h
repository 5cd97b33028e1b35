// SPDX-License-Identifier: Apache-2.0
// The processing of each token before the attention: rotary embedding, norms, quantisation. Each works on one row, and
// is constructed once for a thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cpu/matmul.h"
#include "cpu/tokens.h"

namespace opp {

// The rotary embedding, in float32 and rounded once:
//
//   out = x' * cos + rotate_half(x') * sin      rotate_half([a, b]) = [-b, a]
//
// where x' is x, or if `interleaved` [x0, x2, ..., x1, x3, ...]; out stays in that order.
template <class Element>
class Rope {
 public:
  // cos and sin are (tokens..., width) of Element; width is even.
  Rope(const at::Tensor& cos, const at::Tensor& sin, bool interleaved);

  int64_t width() const { return cos_.width(); }

  // Takes the angles of a token.
  void load(int64_t token);
  // Rotates `width` elements by them. out may be x.
  void apply(const Element* x, Element* out);

 private:
  const TokenRows<Element> cos_;
  const TokenRows<Element> sin_;
  const bool interleaved_;
  Buffer<Element> elements_;
  Buffer<float> angles_;  // cos, then sin
  Buffer<float> row_;     // x, then out
};

// (x - mean) / sqrt(variance + epsilon) * gamma + beta, in float32 and rounded once; the variance is the biased one.
template <class Element>
class LayerNorm {
 public:
  LayerNorm(const at::Tensor& gamma, const at::Tensor& beta, float epsilon);
  void apply(const float* x, Element* out);

 private:
  const int64_t width_;
  const float epsilon_;
  Buffer<float> gamma_;
  Buffer<float> beta_;
  Buffer<float> row_;
};

// x / sqrt(mean of x^2 + epsilon) * gamma, in float32 and rounded once. out may be x.
template <class Element>
class RmsNorm {
 public:
  RmsNorm(const at::Tensor& gamma, float epsilon);
  void apply(const Element* x, Element* out);

 private:
  const int64_t width_;
  const float epsilon_;
  Buffer<float> gamma_;
  Buffer<float> row_;
};

// Symmetric quantisation to int8: out is x * 127 / amax, rounded to the nearest integer, ties to even, where amax is
// the largest |x|, and 0 where that is not a number. apply returns amax / 127, by which out is to be multiplied.
template <class Element>
class Quantiser {
 public:
  explicit Quantiser(int64_t width) : width_(width), row_(width) {}
  float apply(const Element* x, int8_t* out);

 private:
  const int64_t width_;
  Buffer<float> row_;
};

}  // namespace opp
