// SPDX-License-Identifier: Apache-2.0
// SoftMax and its relatives, of the rows of a matrix: computed in float, rounded once.
#pragma once

#include <limits>

#include "ascendc/library.h"
#include "ascendc/tiling_structs.h"

// As the host's tiling function fills it. The CPU needs the shape alone.
namespace AscendC {

using ::SoftMaxTiling;
namespace tiling {
using ::SoftMaxTiling;
}

// Rows and columns as they lie, and how many of the columns count.
struct SoftMaxShapeInfo {
  uint32_t srcM = 0, srcK = 0, oriSrcM = 0, oriSrcK = 0;
};

// The maxima and sums of rows fill a block of 32 bytes each, or lie one behind the other.
enum class SoftmaxMode : uint8_t { SOFTMAX_NORMAL, SOFTMAX_OUTPUT_WITHOUT_BRC };

struct SoftmaxConfig {
  bool isCheckTiling = true;
  uint32_t oriSrcM = 0, oriSrcK = 0;
  SoftmaxMode mode = SoftmaxMode::SOFTMAX_NORMAL;
};
inline constexpr SoftmaxConfig SOFTMAX_DEFAULT_CFG = {};

namespace cpu {

struct Rows {
  int64_t count, step, columns;
};

template <class T>
Rows softmax_rows(const char* name, Where where, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info,
                  const SoftmaxConfig& config) {
  const bool told = info.srcM != 0 && info.srcK != 0;
  const Rows rows{told ? info.srcM : tiling.srcM, told ? info.srcK : tiling.srcK,
                  told && info.oriSrcK != 0 ? info.oriSrcK
                  : config.oriSrcK != 0     ? config.oriSrcK
                  : told                    ? info.srcK
                                            : tiling.srcK};
  if (rows.count == 0 || rows.step == 0) fail(where, "%s: no shape; give a SoftMaxShapeInfo{m, k, m, k}", name);
  if (rows.step % kPerBlock<T> != 0) {
    fail(where, "%s: rows of %lld elements, no whole blocks of 32 bytes; srcK is rounded up, oriSrcK is not", name,
         static_cast<long long>(rows.step));
  }
  return rows;
}

// A number for each row, in a block of its own or not.
template <class T>
struct Statistic {
  const LocalTensor<T>& tensor;
  int64_t step;

  float read(const char* name, Where where, int64_t row) const {
    return read_row(name, where, tensor, row * step, step)[0];
  }
  void write(const char* name, Where where, int64_t row, float value) const {
    write_row(name, where, tensor, row * step, std::vector<float>(static_cast<size_t>(step), value));
  }
};

template <class T>
Statistic<T> statistic(const LocalTensor<T>& tensor, const SoftmaxConfig& config) {
  return {tensor, config.mode == SoftmaxMode::SOFTMAX_NORMAL ? kPerBlock<T> : 1};
}

inline float largest(const std::vector<float>& row) {
  float maximum = -std::numeric_limits<float>::infinity();
  for (const float number : row) maximum = number > maximum ? number : maximum;
  return maximum;
}

// row = exp(row - shift)
inline void exponentials(std::vector<float>& row, float shift) {
  for (float& number : row) number = std::exp(number - shift);
}

template <class T, class Number>
void softmax(Where where, const LocalTensor<T>& dst, const LocalTensor<T>& src, const Statistic<Number>* sums,
             const Statistic<Number>* maxima, const Rows& rows) {
  check_in_place("SoftMax", where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = read_row("SoftMax", where, src, i * rows.step, rows.columns);
    const float maximum = largest(row);
    exponentials(row, maximum);
    const auto sum = static_cast<float>(sum_of(row));
    for (float& number : row) number /= sum;
    write_row("SoftMax", where, dst, i * rows.step, row);
    if (sums != nullptr) sums->write("SoftMax", where, i, sum);
    if (maxima != nullptr) maxima->write("SoftMax", where, i, maximum);
  }
}

}  // namespace cpu

// T and the switches are as CANN has them: whether the source may be used as a work buffer, and whether the shape is
// one of whole repeats. The layout NZ is not served.
#define ASCENDC_CPU_SOFTMAX(T)                                                                           \
  template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, \
            SoftmaxConfig config = SOFTMAX_DEFAULT_CFG, class Element, class Number>                     \
    requires(cpu::OneOf<Element, half, float> && cpu::OneOf<Number, Element, float>)

// dst = the softmax of each row, sum = the sum of its exponentials, max = its largest number.
ASCENDC_CPU_SOFTMAX(T = void)
void SoftMax(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
             const LocalTensor<Element>& src, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},
             cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "SoftMax: the layout NZ is not served by the CPU");
  const cpu::Statistic<Number> sums = cpu::statistic(sum, config), maxima = cpu::statistic(max, config);
  cpu::softmax(where, dst, src, &sums, &maxima, cpu::softmax_rows<Element>("SoftMax", where, tiling, info, config));
}

ASCENDC_CPU_SOFTMAX(T = void)
void SoftMax(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
             const LocalTensor<Element>& src, const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SoftMax", where, work);
  SoftMax<T, isReuseSource, isBasicBlock, isDataFormatNZ, config>(dst, sum, max, src, tiling, info, where);
}

template <class T, bool isReuseSource = false, bool isBasicBlock = false, SoftmaxConfig config = SOFTMAX_DEFAULT_CFG>
  requires cpu::OneOf<T, half, float>
void SoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  constexpr const cpu::Statistic<T>* kNone = nullptr;
  cpu::softmax(where, dst, src, kNone, kNone, cpu::softmax_rows<T>("SoftMax", where, tiling, info, config));
}

template <class T, bool isReuseSource = false, bool isBasicBlock = false, SoftmaxConfig config = SOFTMAX_DEFAULT_CFG>
  requires cpu::OneOf<T, half, float>
void SoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& work,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SoftMax", where, work);
  SoftMax<T, isReuseSource, isBasicBlock, config>(dst, src, tiling, info, where);
}

// dst = exp(src - max) / sum, with the maxima and sums of the rows given.
ASCENDC_CPU_SOFTMAX(T = void)
void SimpleSoftMax(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                   const LocalTensor<Element>& src, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},
                   cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "SimpleSoftMax: the layout NZ is not served by the CPU");
  constexpr const char* kName = "SimpleSoftMax";
  const cpu::Rows rows = cpu::softmax_rows<Element>(kName, where, tiling, info, config);
  cpu::check_in_place(kName, where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * rows.step, rows.columns);
    cpu::exponentials(row, cpu::statistic(max, config).read(kName, where, i));
    const float divisor = cpu::statistic(sum, config).read(kName, where, i);
    for (float& number : row) number /= divisor;
    cpu::write_row(kName, where, dst, i * rows.step, row);
  }
}

ASCENDC_CPU_SOFTMAX(T = void)
void SimpleSoftMax(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                   const LocalTensor<Element>& src, const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling,
                   const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SimpleSoftMax", where, work);
  SimpleSoftMax<T, isReuseSource, isBasicBlock, isDataFormatNZ, config>(dst, sum, max, src, tiling, info, where);
}

// A softmax over columns that come part by part: dst = exp(src - max), not yet divided, with the largest number so far.
// isUpdate: inSum and inMax are of the parts before, and expMax = exp(inMax - max) is by what their results shrink.
template <class T = void, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false,
          bool isDataFormatNZ = false, SoftmaxConfig config = SOFTMAX_DEFAULT_CFG, class Element, class Number>
  requires(cpu::OneOf<Element, half, float> && cpu::OneOf<Number, Element, float>)
void SoftmaxFlashV2(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                    const LocalTensor<Element>& src, const LocalTensor<Element>& expMax,
                    const LocalTensor<Number>& inSum, const LocalTensor<Number>& inMax, const SoftMaxTiling& tiling,
                    const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "SoftmaxFlashV2: the layout NZ is not served by the CPU");
  constexpr const char* kName = "SoftmaxFlashV2";
  const cpu::Rows rows = cpu::softmax_rows<Element>(kName, where, tiling, info, config);
  cpu::check_in_place(kName, where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * rows.step, rows.columns);
    float maximum = cpu::largest(row), before = 0;
    if constexpr (isUpdate) {
      const float earlier = cpu::statistic(inMax, config).read(kName, where, i);
      maximum = earlier > maximum ? earlier : maximum;
      const float shrinks = std::exp(earlier - maximum);
      before = shrinks * cpu::statistic(inSum, config).read(kName, where, i);
      cpu::statistic(expMax, config).write(kName, where, i, shrinks);
    }
    cpu::exponentials(row, maximum);
    cpu::statistic(sum, config).write(kName, where, i, static_cast<float>(before + cpu::sum_of(row)));
    cpu::statistic(max, config).write(kName, where, i, maximum);
    cpu::write_row(kName, where, dst, i * rows.step, row);
  }
}

template <class T = void, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false,
          bool isDataFormatNZ = false, SoftmaxConfig config = SOFTMAX_DEFAULT_CFG, class Element, class Number>
  requires(cpu::OneOf<Element, half, float> && cpu::OneOf<Number, Element, float>)
void SoftmaxFlashV2(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                    const LocalTensor<Element>& src, const LocalTensor<Element>& expMax,
                    const LocalTensor<Number>& inSum, const LocalTensor<Number>& inMax,
                    const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},
                    cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SoftmaxFlashV2", where, work);
  SoftmaxFlashV2<T, isUpdate, isReuseSource, isBasicBlock, isDataFormatNZ, config>(dst, sum, max, src, expMax, inSum,
                                                                                   inMax, tiling, info, where);
}
#undef ASCENDC_CPU_SOFTMAX

}  // namespace AscendC
