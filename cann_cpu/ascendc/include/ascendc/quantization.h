// SPDX-License-Identifier: Apache-2.0
// AscendQuant, AscendDequant, AscendAntiQuant: numbers as integers of 8 bits and back, computed in float, rounded once.
#pragma once

#include "ascendc/cast.h"
#include "ascendc/library.h"

namespace AscendC {

// Rows, their elements as they lie, and how many of them count.
struct DequantParams {
  uint32_t m = 0, n = 0, calCount = 0;
};

struct AntiQuantShapeInfo {
  uint32_t offsetHeight = 0, offsetWidth = 0, scaleHeight = 0, scaleWidth = 0;
};

// dst = src * scale + offset, rounded to nearest even
template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void AscendQuant(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src, const float scale, const float offset,
                 const uint32_t count, cpu::Where where = cpu::Where::current()) {
  cpu::check_in_place("AscendQuant", where, dst, count, src, count);
  std::vector<float> row = cpu::read_row("AscendQuant", where, src, 0, count);
  std::vector<int8_t> quantized;
  for (const float number : row) {
    quantized.push_back(cpu::saturated<int8_t>(std::nearbyint(double{number} * scale + offset)));
  }
  cpu::write_row("AscendQuant", where, dst, 0, quantized);
}

template <class T, bool isReuseSource = false>
  requires cpu::OneOf<T, half, float>
void AscendQuant(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& work,
                 const float scale, const float offset, const uint32_t count,
                 cpu::Where where = cpu::Where::current()) {
  cpu::check_work("AscendQuant", where, work);
  AscendQuant<T, isReuseSource>(dst, src, scale, offset, count, where);
}

namespace cpu {

// Rows of dst begin on blocks of 32 bytes; scale(k) is that of column k.
template <class Dst, class Scale>
void dequantize(Where where, const LocalTensor<Dst>& dst, const LocalTensor<int32_t>& src, const Scale& scale,
                const DequantParams& params) {
  constexpr const char* kName = "AscendDequant";
  if (params.n % kPerBlock<int32_t> != 0 || params.calCount > params.n) {
    fail(where, "%s: n %u, calCount %u; n is whole blocks of 32 bytes, and calCount of its elements count", kName,
         params.n, params.calCount);
  }
  const int64_t step = padded<Dst>(params.n);
  check_in_place(kName, where, dst, params.m * step, src, int64_t{params.m} * params.n);
  for (uint32_t i = 0; i < params.m; ++i) {
    std::vector<float> row = read_row(kName, where, src, int64_t{i} * params.n, params.calCount);
    for (size_t k = 0; k < row.size(); ++k) row[k] *= scale(k);
    write_row(kName, where, dst, i * step, row);
  }
}

template <class T>
concept DequantScale = OneOf<T, float, bfloat16_t>;

}  // namespace cpu

// dst = src * scale, with a number for each column
template <class Dst, class Scale>
  requires(cpu::OneOf<Dst, half, bfloat16_t, float> && cpu::DequantScale<Scale>)
void AscendDequant(const LocalTensor<Dst>& dst, const LocalTensor<int32_t>& src, const LocalTensor<Scale>& scale,
                   const DequantParams& params, cpu::Where where = cpu::Where::current()) {
  const std::vector<float> factors = cpu::read_row("AscendDequant", where, scale, 0, params.calCount);
  cpu::dequantize(where, dst, src, [&](size_t k) { return factors[k]; }, params);
}

template <class Dst, class Scale>
  requires(cpu::OneOf<Dst, half, bfloat16_t, float> && cpu::DequantScale<Scale>)
void AscendDequant(const LocalTensor<Dst>& dst, const LocalTensor<int32_t>& src, const LocalTensor<Scale>& scale,
                   const LocalTensor<uint8_t>& work, const DequantParams& params,
                   cpu::Where where = cpu::Where::current()) {
  cpu::check_work("AscendDequant", where, work);
  AscendDequant(dst, src, scale, params, where);
}

// The same, with one number for all.
template <class Dst, class Scale>
  requires(cpu::OneOf<Dst, half, bfloat16_t, float> && cpu::DequantScale<Scale>)
void AscendDequant(const LocalTensor<Dst>& dst, const LocalTensor<int32_t>& src, const Scale scale,
                   const DequantParams& params, cpu::Where where = cpu::Where::current()) {
  cpu::dequantize(where, dst, src, [factor = static_cast<float>(scale)](size_t) { return factor; }, params);
}

template <class Dst, class Scale>
  requires(cpu::OneOf<Dst, half, bfloat16_t, float> && cpu::DequantScale<Scale>)
void AscendDequant(const LocalTensor<Dst>& dst, const LocalTensor<int32_t>& src, const Scale scale,
                   const LocalTensor<uint8_t>& work, const DequantParams& params,
                   cpu::Where where = cpu::Where::current()) {
  cpu::check_work("AscendDequant", where, work);
  AscendDequant(dst, src, scale, params, where);
}

// dst = scale * (src + offset), with one number for all
template <class Src, class Dst, bool isTranspose>
  requires(std::is_same_v<Src, int8_t> && cpu::OneOf<Dst, half, bfloat16_t>)
void AscendAntiQuant(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const Dst offset, const Dst scale,
                     const LocalTensor<uint8_t>& work, const uint32_t /*K*/, const AntiQuantShapeInfo& = {},
                     cpu::Where where = cpu::Where::current()) {
  cpu::check_work("AscendAntiQuant", where, work);
  const int64_t count = src.GetSize();
  cpu::check_in_place("AscendAntiQuant", where, dst, count, src, count);
  std::vector<float> row = cpu::read_row("AscendAntiQuant", where, src, 0, count);
  for (float& number : row) number = static_cast<float>(scale) * (number + static_cast<float>(offset));
  cpu::write_row("AscendAntiQuant", where, dst, 0, row);
}

// The same, with a number for each column of the K rows, or for each of several groups of rows.
template <class Src, class Dst, bool isTranspose>
  requires(std::is_same_v<Src, int8_t> && cpu::OneOf<Dst, half, bfloat16_t>)
void AscendAntiQuant(const LocalTensor<Dst>& dst, const LocalTensor<Src>& src, const LocalTensor<Dst>& offset,
                     const LocalTensor<Dst>& scale, const LocalTensor<uint8_t>& work, const uint32_t K,
                     const AntiQuantShapeInfo& shape, cpu::Where where = cpu::Where::current()) {
  static_assert(!isTranspose, "AscendAntiQuant: a transposed source is not supported on the CPU");
  constexpr const char* kName = "AscendAntiQuant";
  cpu::check_work(kName, where, work);
  const int64_t groups = shape.scaleHeight, columns = shape.scaleWidth;
  if (shape.offsetHeight != groups || shape.offsetWidth != columns || groups == 0 || columns == 0 || K % groups != 0) {
    cpu::fail(where, "%s: scales %u * %u, offsets %u * %u, K %u; they have the same shape, and its height divides K",
              kName, shape.scaleHeight, shape.scaleWidth, shape.offsetHeight, shape.offsetWidth, K);
  }
  const std::vector<float> scales = cpu::read_row(kName, where, scale, 0, groups * columns);
  const std::vector<float> offsets = cpu::read_row(kName, where, offset, 0, groups * columns);
  cpu::check_in_place(kName, where, dst, K * columns, src, K * columns);
  for (int64_t i = 0; i < K; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * columns, columns);
    const size_t group = static_cast<size_t>(i / (K / groups) * columns);
    for (size_t k = 0; k < row.size(); ++k) row[k] = scales[group + k] * (row[k] + offsets[group + k]);
    cpu::write_row(kName, where, dst, i * columns, row);
  }
}

}  // namespace AscendC
