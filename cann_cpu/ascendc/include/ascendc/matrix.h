// SPDX-License-Identifier: Apache-2.0
// Matrices in the unified buffer: sums, means, largest and smallest of rows or columns; Broadcast, Pad and UnPad.
#pragma once

#include "ascendc/library.h"
#include "ascendc/reduce.h"
#include "ascendc/tiling_structs.h"

namespace AscendC {

using ::PadTiling;
using ::UnPadTiling;
namespace tiling {
using ::PadTiling;
using ::UnPadTiling;
}  // namespace tiling

// Rows, their elements rounded up to whole blocks of 32 bytes, and as they are.
struct SumParams {
  uint32_t outter = 1, inner = 0, n = 0;
};
struct MeanParams {
  uint32_t outter = 1, inner = 0, n = 0;
};

struct PadParams {
  uint16_t leftPad = 0, rightPad = 0;
  int32_t padValue = 0;
};
struct UnPadParams {
  uint16_t leftPad = 0, rightPad = 0;
};

// The axis that is reduced: the last one (AR), or the first (RA).
namespace Pattern::Reduce {
struct AR {};
struct RA {};
}  // namespace Pattern::Reduce

namespace cpu {

// dst[i] = the sum of n elements of row i, divided by `by`.
template <class T, class Params>
void sum_of_rows(const char* name, Where where, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                 const Params& params, double by) {
  if (params.n > params.inner || params.inner % kPerBlock<T> != 0) {
    fail(where, "%s: n %u, inner %u; inner is n rounded up to whole blocks of 32 bytes", name, params.n, params.inner);
  }
  std::vector<float> sums;
  for (uint32_t i = 0; i < params.outter; ++i) {
    const double sum = sum_of(read_row(name, where, src, int64_t{i} * params.inner, params.n));
    sums.push_back(static_cast<float>(sum / by));
  }
  write_row(name, where, dst, 0, sums);
}

// One number for each row, or for each column, of a matrix whose rows begin on blocks of 32 bytes.
template <class T, class Axis, class Combine>
void reduce_matrix(const char* name, Where where, const Combine& combine, const LocalTensor<T>& dst,
                   const LocalTensor<T>& src, const uint32_t shape[], bool padded_rows) {
  constexpr bool kRows = std::is_same_v<Axis, Pattern::Reduce::AR>;
  static_assert(kRows || std::is_same_v<Axis, Pattern::Reduce::RA>, "only AR and RA are supported on the CPU");
  if (!padded_rows) fail(where, "%s: srcInnerPad is false; Atlas A2 takes rows that begin on 32 bytes", name);
  const int64_t step = padded<T>(shape[1]);
  std::vector<double> results;
  for (uint32_t i = 0; i < shape[0]; ++i) {
    const std::vector<float> row = read_row(name, where, src, i * step, shape[1]);
    for (size_t k = 0; k < row.size(); ++k) {
      const size_t to = kRows ? i : k;
      if (to < results.size()) {
        results[to] = combine(results[to], double{row[k]});
      } else {
        results.push_back(row[k]);
      }
    }
  }
  write_row(name, where, dst, 0, std::vector<float>(results.begin(), results.end()));
}

// dst = the rows of src, each after `left` and before `right` elements of a value; what was there comes from `kept`
// columns, and both begin `step` elements apart.
template <class T>
void move_rows(const char* name, Where where, const LocalTensor<T>& dst, int64_t dst_step, int64_t dst_first,
               const LocalTensor<T>& src, int64_t src_step, int64_t src_first, int64_t rows, int64_t columns) {
  const auto bytes = columns * static_cast<int64_t>(sizeof(T));
  std::vector<std::byte> all(static_cast<size_t>(rows * bytes));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t from = (i * src_step + src_first) * static_cast<int64_t>(sizeof(T));
    check_bytes(name, where, Use::Read, src.memory(), from, bytes);
    std::memcpy(all.data() + i * bytes, src.memory().data + from, static_cast<size_t>(bytes));
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t to = (i * dst_step + dst_first) * static_cast<int64_t>(sizeof(T));
    check_bytes(name, where, Use::Write, dst.memory(), to, bytes);
    std::memcpy(dst.memory().data + to, all.data() + i * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace cpu

template <class T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
  requires cpu::OneOf<T, half, float>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const SumParams& params,
         cpu::Where where = cpu::Where::current()) {
  static_assert(reduceDim == -1, "Sum: only the last axis, -1, is supported on the CPU");
  cpu::sum_of_rows("Sum", where, dst, src, params, 1);
}

template <class T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
  requires cpu::OneOf<T, half, float>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& work,
         const SumParams& params, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("Sum", where, work);
  Sum<T, reduceDim, isReuseSource, isBasicBlock>(dst, src, params, where);
}

template <class T, class Accumulator = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
  requires(cpu::OneOf<T, half, float> && cpu::OneOf<Accumulator, T, float>)
void Mean(const LocalTensor<T>& dst, const LocalTensor<T>& src, const MeanParams& params,
          cpu::Where where = cpu::Where::current()) {
  static_assert(reduceDim == -1, "Mean: only the last axis, -1, is supported on the CPU");
  cpu::sum_of_rows("Mean", where, dst, src, params, params.n);
}

template <class T, class Accumulator = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
  requires(cpu::OneOf<T, half, float> && cpu::OneOf<Accumulator, T, float>)
void Mean(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& work,
          const MeanParams& params, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("Mean", where, work);
  Mean<T, Accumulator, isReuseSource, isBasicBlock, reduceDim>(dst, src, params, where);
}

#define ASCENDC_CPU_REDUCE_MATRIX(Name, combine)                                                               \
  template <class T, class Axis, bool isReuseSource = false>                                                   \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t srcShape[], bool srcInnerPad, \
            cpu::Where where = cpu::Where::current()) {                                                        \
    cpu::reduce_matrix<T, Axis>(#Name, where, combine, dst, src, srcShape, srcInnerPad);                       \
  }                                                                                                            \
  template <class T, class Axis, bool isReuseSource = false>                                                   \
    requires cpu::OneOf<T, half, float>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& work,            \
            const uint32_t srcShape[], bool srcInnerPad, cpu::Where where = cpu::Where::current()) {           \
    cpu::check_work(#Name, where, work);                                                                       \
    cpu::reduce_matrix<T, Axis>(#Name, where, combine, dst, src, srcShape, srcInnerPad);                       \
  }
ASCENDC_CPU_REDUCE_MATRIX(ReduceSum, cpu::sum)
ASCENDC_CPU_REDUCE_MATRIX(ReduceMax, cpu::larger)
ASCENDC_CPU_REDUCE_MATRIX(ReduceMin, cpu::smaller)
#undef ASCENDC_CPU_REDUCE_MATRIX

// dst = src, repeated along `axis`, where srcShape is 1.
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
  requires cpu::OneOf<T, int8_t, uint8_t, half, bfloat16_t, int16_t, int32_t, float>
void Broadcast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[],
               const uint32_t srcShape[], cpu::Where where = cpu::Where::current()) {
  static_assert((dim == 1 && axis == 0) || (dim == 2 && (axis == 0 || axis == 1)),
                "Broadcast: a vector along axis 0, or a matrix along axis 0 or 1");
  for (int32_t i = 0; i < dim; ++i) {
    if (srcShape[i] != (i == axis ? 1 : dstShape[i])) {
      cpu::fail(where, "Broadcast: axis %d has %u elements in src and %u in dst", i, srcShape[i], dstShape[i]);
    }
  }
  const int64_t rows = dim == 2 ? dstShape[0] : 1, columns = dstShape[dim - 1];
  const int64_t elements = axis == dim - 1 ? rows : columns;
  const auto bytes = elements * static_cast<int64_t>(sizeof(T));
  cpu::check_bytes("Broadcast", where, cpu::Use::Read, src.memory(), 0, bytes);
  const std::vector<std::byte> values(src.memory().data, src.memory().data + bytes);
  cpu::check_bytes("Broadcast", where, cpu::Use::Write, dst.memory(), 0, rows * columns * sizeof(T));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t from = axis == dim - 1 ? i / columns : i % columns;
    std::memcpy(dst.memory().data + i * sizeof(T), values.data() + from * sizeof(T), sizeof(T));
  }
}

template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
  requires cpu::OneOf<T, int8_t, uint8_t, half, bfloat16_t, int16_t, int32_t, float>
void Broadcast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[],
               const uint32_t srcShape[], const LocalTensor<uint8_t>& work, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("Broadcast", where, work);
  Broadcast<T, dim, axis, isReuseSource>(dst, src, dstShape, srcShape, where);
}

// The same by its older name.
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void BroadCast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[],
               const uint32_t srcShape[], cpu::Where where = cpu::Where::current()) {
  Broadcast<T, dim, axis, isReuseSource>(dst, src, dstShape, srcShape, where);
}
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void BroadCast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[],
               const uint32_t srcShape[], const LocalTensor<uint8_t>& work, cpu::Where where = cpu::Where::current()) {
  Broadcast<T, dim, axis, isReuseSource>(dst, src, dstShape, srcShape, work, where);
}

// Fills rows of srcOriWidth elements up to whole blocks of 32 bytes, before or after the elements. If srcWidth is
// already a whole number of blocks, the last elements of srcWidth are filled.
template <class T>
  requires cpu::OneOf<T, half, float, int16_t, uint16_t, int32_t, uint32_t>
void Pad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const PadParams& params, const PadTiling& tiling,
         cpu::Where where = cpu::Where::current()) {
  const int64_t rows = tiling.srcHeight, columns = tiling.srcOriWidth, width = cpu::padded<T>(tiling.srcWidth);
  if (params.leftPad != 0 && params.rightPad != 0) {
    cpu::fail(where, "Pad: leftPad %u and rightPad %u; one of them is 0", params.leftPad, params.rightPad);
  }
  if (columns + params.leftPad + params.rightPad != width) {
    cpu::fail(where, "Pad: %lld elements and %u paddings in a row are not its width in whole blocks, %lld",
              static_cast<long long>(columns), params.leftPad + params.rightPad, static_cast<long long>(width));
  }
  cpu::move_rows("Pad", where, dst, width, params.leftPad, src, tiling.srcWidth, 0, rows, columns);
  const std::vector<T> padding(params.leftPad + params.rightPad, static_cast<T>(params.padValue));
  for (int64_t i = 0; i < rows; ++i) {
    cpu::write_row("Pad", where, dst, i * width + (params.leftPad != 0 ? 0 : columns), padding);
  }
}

template <class T>
  requires cpu::OneOf<T, half, float, int16_t, uint16_t, int32_t, uint32_t>
void Pad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const PadParams& params,
         const LocalTensor<uint8_t>& work, const PadTiling& tiling, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("Pad", where, work);
  Pad(dst, src, params, tiling, where);
}

// The rows without their last rightPad elements, consecutively.
template <class T>
  requires cpu::OneOf<T, half, float, int16_t, uint16_t, int32_t, uint32_t>
void UnPad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const UnPadParams& params, const UnPadTiling& tiling,
           cpu::Where where = cpu::Where::current()) {
  if (params.leftPad != 0)
    cpu::fail(where, "UnPad: leftPad %u; the device takes elements off the right only", params.leftPad);
  if (tiling.srcWidth % cpu::kPerBlock<T> != 0 || params.rightPad >= tiling.srcWidth) {
    cpu::fail(where, "UnPad: rows of %u elements and %u of them padding; rows are whole blocks of 32 bytes",
              tiling.srcWidth, params.rightPad);
  }
  const int64_t kept = tiling.srcWidth - params.rightPad;
  cpu::move_rows("UnPad", where, dst, kept, 0, src, tiling.srcWidth, 0, tiling.srcHeight, kept);
}

template <class T>
  requires cpu::OneOf<T, half, float, int16_t, uint16_t, int32_t, uint32_t>
void UnPad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const UnPadParams& params,
           const LocalTensor<uint8_t>& work, const UnPadTiling& tiling, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("UnPad", where, work);
  UnPad(dst, src, params, tiling, where);
}

}  // namespace AscendC
