// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RmsNorm of rows: computed in float, rounded once. As the host's tiling functions fill them, the structs
// have more than the shape, which is all that the CPU needs.
#pragma once

#include "ascendc/library.h"
#include "ascendc/tiling_structs.h"

namespace AscendC {

using ::LayerNormTiling;
using ::RmsNormTiling;
namespace tiling {
using ::LayerNormTiling;
using ::RmsNormTiling;
}  // namespace tiling

namespace cpu {

template <class T, class Tiling>
void check_normalized(const char* name, Where where, const Tiling& tiling) {
  if (tiling.hLength == 0 || tiling.originalHLength == 0 || tiling.originalHLength > tiling.hLength ||
      tiling.hLength % kPerBlock<T> != 0) {
    fail(where, "%s: hLength %u, originalHLength %u; the first is the second rounded up to whole blocks of 32 bytes",
         name, tiling.hLength, tiling.originalHLength);
  }
}

}  // namespace cpu

// output = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with the mean and variance of each of the bLength *
// sLength rows.
template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& mean, const LocalTensor<T>& variance,
               const LocalTensor<T>& x, const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const T epsilon,
               const LayerNormTiling& tiling, cpu::Where where = cpu::Where::current()) {
  constexpr const char* kName = "LayerNorm";
  cpu::check_normalized<T>(kName, where, tiling);
  const int64_t rows = int64_t{tiling.bLength} * tiling.sLength, step = tiling.hLength, n = tiling.originalHLength;
  cpu::check_in_place(kName, where, output, rows * step, x, rows * step);
  const std::vector<float> scale = cpu::read_row(kName, where, gamma, 0, n);
  const std::vector<float> shift = cpu::read_row(kName, where, beta, 0, n);
  std::vector<float> means, variances;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, x, i * step, n);
    const auto middle = static_cast<float>(cpu::sum_of(row) / static_cast<double>(n));
    const auto spread = static_cast<float>(cpu::sum_of_squares(row, middle) / static_cast<double>(n));
    const float factor = 1 / std::sqrt(spread + static_cast<float>(epsilon));
    cpu::add(row, -middle);
    cpu::multiply(row, factor);
    cpu::multiply(row, scale);
    cpu::add(row, shift);
    cpu::write_row(kName, where, output, i * step, row);
    means.push_back(middle), variances.push_back(spread);
  }
  cpu::write_row(kName, where, mean, 0, means);
  cpu::write_row(kName, where, variance, 0, variances);
}

template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& mean, const LocalTensor<T>& variance,
               const LocalTensor<T>& x, const LocalTensor<T>& gamma, const LocalTensor<T>& beta,
               const LocalTensor<uint8_t>& work, const T epsilon, const LayerNormTiling& tiling,
               cpu::Where where = cpu::Where::current()) {
  cpu::check_work("LayerNorm", where, work);
  LayerNorm<T, isReuseSource>(output, mean, variance, x, gamma, beta, epsilon, tiling, where);
}

// dst = src / sqrt(mean of the row's squares + epsilon) * gamma
template <class T, bool isBasicBlock = false>
  requires cpu::OneOf<T, half, float>
void RmsNorm(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& gamma, const T& epsilon,
             const RmsNormTiling& tiling, cpu::Where where = cpu::Where::current()) {
  constexpr const char* kName = "RmsNorm";
  cpu::check_normalized<T>(kName, where, tiling);
  const int64_t rows = int64_t{tiling.bLength} * tiling.sLength, step = tiling.hLength, n = tiling.originalHLength;
  cpu::check_in_place(kName, where, dst, rows * step, src, rows * step);
  const std::vector<float> scale = cpu::read_row(kName, where, gamma, 0, n);
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * step, n);
    const float factor = 1 / std::sqrt(static_cast<float>(cpu::sum_of_squares(row) / static_cast<double>(n)) +
                                       static_cast<float>(epsilon));
    std::vector<float> factors = scale;
    cpu::multiply(factors, factor);
    cpu::multiply(row, factors);
    cpu::write_row(kName, where, dst, i * step, row);
  }
}

template <class T, bool isBasicBlock = false>
  requires cpu::OneOf<T, half, float>
void RmsNorm(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& gamma,
             const LocalTensor<uint8_t>& work, const T& epsilon, const RmsNormTiling& tiling,
             cpu::Where where = cpu::Where::current()) {
  cpu::check_work("RmsNorm", where, work);
  RmsNorm<T, isBasicBlock>(dst, src, gamma, epsilon, tiling, where);
}

}  // namespace AscendC
