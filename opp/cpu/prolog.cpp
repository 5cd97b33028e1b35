// SPDX-License-Identifier: Apache-2.0
// The processing of each token before the attention: rotary embedding, norms, quantisation. All work on one row.
#include "cpu/prolog.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace opp {
namespace {

template <class Element>
Buffer<float> floats_of(const at::Tensor& vector) {
  Buffer<float> floats(vector.numel());
  copy_row(vector.const_data_ptr<Element>(), vector.stride(0), vector.numel(), floats.data());
  return floats;
}

}  // namespace

template <class Element>
Rope<Element>::Rope(const at::Tensor& cos, const at::Tensor& sin, bool interleaved)
    : cos_(cos), sin_(sin), interleaved_(interleaved), elements_(width()), angles_(2 * width()), row_(2 * width()) {}

template <class Element>
void Rope<Element>::load(int64_t token) {
  cos_.read(token, elements_.data());
  simd().to_float(elements_.data(), width(), angles_.data());
  sin_.read(token, elements_.data());
  simd().to_float(elements_.data(), width(), angles_.data() + width());
}

template <class Element>
void Rope<Element>::apply(const Element* x, Element* out) {
  const float* cos = angles_.data();
  const float* sin = cos + width();
  if constexpr (std::is_same_v<Element, at::BFloat16>) {
    simd().rotate(x, width() / 2, interleaved_, cos, sin, elements_.data());
    std::copy_n(elements_.data(), width(), out);
  } else {
    float* rotated = row_.data() + width();
    simd().to_float(x, width(), row_.data());
    simd().rotate(row_.data(), width() / 2, interleaved_, cos, sin, rotated);
    simd().from_float(rotated, width(), out);
  }
}

template <class Element>
LayerNorm<Element>::LayerNorm(const at::Tensor& gamma, const at::Tensor& beta, float epsilon)
    : width_(gamma.numel()),
      epsilon_(epsilon),
      gamma_(floats_of<Element>(gamma)),
      beta_(floats_of<Element>(beta)),
      row_(width_) {}

template <class Element>
void LayerNorm<Element>::apply(const float* x, Element* out) {
  const auto count = static_cast<float>(width_);
  const float mean = simd().sum(x, width_) / count;
  const float deviation = std::sqrt(simd().sum_of_squares(x, width_, mean) / count + epsilon_);
  simd().scale_and_shift(x, width_, mean, 1 / deviation, gamma_.data(), beta_.data(), row_.data());
  simd().from_float(row_.data(), width_, out);
}

template <class Element>
RmsNorm<Element>::RmsNorm(const at::Tensor& gamma, float epsilon)
    : width_(gamma.numel()), epsilon_(epsilon), gamma_(floats_of<Element>(gamma)), row_(width_) {}

template <class Element>
void RmsNorm<Element>::apply(const Element* x, Element* out) {
  simd().to_float(x, width_, row_.data());
  const float mean_square = simd().sum_of_squares(row_.data(), width_, 0) / static_cast<float>(width_);
  simd().scale_and_shift(row_.data(), width_, 0, 1 / std::sqrt(mean_square + epsilon_), gamma_.data(), nullptr,
                         row_.data());
  simd().from_float(row_.data(), width_, out);
}

template <class Element>
float Quantiser<Element>::apply(const Element* x, int8_t* out) {
  if constexpr (std::is_same_v<Element, at::BFloat16>) {
    return simd().quantise(x, width_, out) / 127;
  } else {
    simd().to_float(x, width_, row_.data());
    return simd().quantise(row_.data(), width_, out) / 127;
  }
}

template class Rope<at::Half>;
template class Rope<at::BFloat16>;
template class LayerNorm<at::Half>;
template class LayerNorm<at::BFloat16>;
template class RmsNorm<at::Half>;
template class RmsNorm<at::BFloat16>;
template class Quantiser<at::Half>;
template class Quantiser<at::BFloat16>;

}  // namespace opp
