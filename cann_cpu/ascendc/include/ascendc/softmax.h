// SPDX-License-Identifier: Apache-2.0
// SoftMax and its relatives, of the rows of a matrix: computed in float, rounded once.
#pragma once

#include <limits>

#include "ascendc/library.h"
#include "ascendc/tiling_structs.h"

// As the host's tiling function fills it. The CPU needs the shape alone.
namespace AscendC {

using ::LogSoftMaxTiling;
using ::SoftMaxTiling;
namespace tiling {
using ::LogSoftMaxTiling;
using ::SoftMaxTiling;
}  // namespace tiling

// Rows and columns as they lie, and how many of the columns count.
struct SoftMaxShapeInfo {
  uint32_t srcM = 0, srcK = 0, oriSrcM = 0, oriSrcK = 0;
};

// The tiling that a kernel makes itself, of the shape that it then gives to SoftmaxFlashV2 as well.
inline constexpr SoftMaxTiling SoftMaxFlashV2TilingFunc(const SoftMaxShapeInfo& shape, uint32_t /*type_size*/,
                                                        uint32_t sum_type_size, uint32_t /*work_bytes*/,
                                                        bool /*isUpdate*/ = false, bool /*isBasicBlock*/ = false,
                                                        bool /*isDataFormatNZ*/ = false,
                                                        bool /*isFlashOutputBrc*/ = false) {
  SoftMaxTiling tiling;
  tiling.srcM = tiling.outMaxM = tiling.splitM = tiling.reduceM = shape.srcM;
  tiling.srcK = tiling.splitK = shape.srcK;
  tiling.srcSize = tiling.splitSize = shape.srcM * shape.srcK;
  tiling.outMaxK = tiling.reduceK = cpu::kBlockBytes / sum_type_size;
  tiling.outMaxSize = tiling.reduceSize = tiling.outMaxM * tiling.outMaxK;
  tiling.rangeM = 1;
  return tiling;
}

// The maxima and sums of rows fill a block of 32 bytes each, or lie consecutively.
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
  const bool given = info.srcM != 0 && info.srcK != 0;
  const Rows rows{given ? info.srcM : tiling.srcM, given ? info.srcK : tiling.srcK,
                  given && info.oriSrcK != 0 ? info.oriSrcK
                  : config.oriSrcK != 0      ? config.oriSrcK
                  : given                    ? info.srcK
                                             : tiling.srcK};
  if (rows.count == 0 || rows.step == 0) fail(where, "%s: no shape; give a SoftMaxShapeInfo{m, k, m, k}", name);
  if (rows.step % kPerBlock<T> != 0) {
    fail(where, "%s: rows of %lld elements, no whole blocks of 32 bytes; srcK is rounded up, oriSrcK is not", name,
         static_cast<long long>(rows.step));
  }
  return rows;
}

// A number for each row, in a separate block or consecutively.
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

template <class T, class Number>
void softmax(Where where, const LocalTensor<T>& dst, const LocalTensor<T>& src, const Statistic<Number>* sums,
             const Statistic<Number>* maxima, const Rows& rows) {
  check_in_place("SoftMax", where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = read_row("SoftMax", where, src, i * rows.step, rows.columns);
    const float maximum = largest(row);
    exponentials(row, maximum);
    const auto sum = static_cast<float>(sum_of(row));
    cpu::divide(row, sum);
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
  static_assert(!isDataFormatNZ, "SoftMax: the layout NZ is not supported on the CPU");
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
  static_assert(!isDataFormatNZ, "SimpleSoftMax: the layout NZ is not supported on the CPU");
  constexpr const char* kName = "SimpleSoftMax";
  const cpu::Rows rows = cpu::softmax_rows<Element>(kName, where, tiling, info, config);
  cpu::check_in_place(kName, where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * rows.step, rows.columns);
    cpu::exponentials(row, cpu::statistic(max, config).read(kName, where, i));
    const float divisor = cpu::statistic(sum, config).read(kName, where, i);
    cpu::divide(row, divisor);
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
  static_assert(!isDataFormatNZ, "SoftmaxFlashV2: the layout NZ is not supported on the CPU");
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

// As SoftmaxFlashV2, but divided by the sum so far; expMax is by what the results before shrink.
template <class T = void, bool isReuseSource = false, bool isBasicBlock = false, class Element, class Number>
  requires(cpu::OneOf<Element, half, float> && cpu::OneOf<Number, Element, float>)
void SoftmaxFlash(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                  const LocalTensor<Element>& src, const LocalTensor<Element>& expMax, const LocalTensor<Number>& inSum,
                  const LocalTensor<Number>& inMax, const SoftMaxTiling& tiling, bool isUpdate = false,
                  const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  constexpr const char* kName = "SoftmaxFlash";
  const cpu::Rows rows = cpu::softmax_rows<Element>(kName, where, tiling, info, SOFTMAX_DEFAULT_CFG);
  cpu::check_in_place(kName, where, dst, rows.count * rows.step, src, rows.count * rows.step);
  const auto statistic = [](const auto& tensor) { return cpu::statistic(tensor, SOFTMAX_DEFAULT_CFG); };
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * rows.step, rows.columns);
    float maximum = cpu::largest(row), before = 0;
    if (isUpdate) {
      const float earlier = statistic(inMax).read(kName, where, i);
      maximum = std::max(maximum, earlier);
      before = std::exp(earlier - maximum) * statistic(inSum).read(kName, where, i);
    }
    cpu::exponentials(row, maximum);
    const auto total = static_cast<float>(before + cpu::sum_of(row));
    cpu::divide(row, total);
    if (isUpdate) statistic(expMax).write(kName, where, i, before / total);
    statistic(sum).write(kName, where, i, total);
    statistic(max).write(kName, where, i, maximum);
    cpu::write_row(kName, where, dst, i * rows.step, row);
  }
}
template <class T = void, bool isReuseSource = false, bool isBasicBlock = false, class Element, class Number>
  requires(cpu::OneOf<Element, half, float> && cpu::OneOf<Number, Element, float>)
void SoftmaxFlash(const LocalTensor<Element>& dst, const LocalTensor<Number>& sum, const LocalTensor<Number>& max,
                  const LocalTensor<Element>& src, const LocalTensor<Element>& expMax, const LocalTensor<Number>& inSum,
                  const LocalTensor<Number>& inMax, const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling,
                  bool isUpdate = false, const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SoftmaxFlash", where, work);
  SoftmaxFlash(dst, sum, max, src, expMax, inSum, inMax, tiling, isUpdate, info, where);
}

// The gradient of a softmax whose result is src: (grad - the row's sum of grad * src) * src; isFront: that sum, in a
// block of 32 bytes for each row.
template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
  requires cpu::OneOf<T, half, float>
void SoftmaxGrad(const LocalTensor<T>& dst, const LocalTensor<T>& grad, const LocalTensor<T>& src,
                 const SoftMaxTiling& tiling, bool isFront = false, const SoftMaxShapeInfo& info = {},
                 cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "SoftmaxGrad: the layout NZ is not supported on the CPU");
  const char* name = isFront ? "SoftmaxGradFront" : "SoftmaxGrad";
  const cpu::Rows rows = cpu::softmax_rows<T>(name, where, tiling, info, SOFTMAX_DEFAULT_CFG);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> of = cpu::read_row(name, where, grad, i * rows.step, rows.columns);
    const std::vector<float> result = cpu::read_row(name, where, src, i * rows.step, rows.columns);
    double sum = 0;
    for (size_t k = 0; k < of.size(); ++k) sum += double{of[k]} * result[k];
    if (isFront) {
      cpu::statistic(dst, SOFTMAX_DEFAULT_CFG).write(name, where, i, static_cast<float>(sum));
      continue;
    }
    for (size_t k = 0; k < of.size(); ++k) of[k] = (of[k] - static_cast<float>(sum)) * result[k];
    cpu::write_row(name, where, dst, i * rows.step, of);
  }
}
template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
  requires cpu::OneOf<T, half, float>
void SoftmaxGrad(const LocalTensor<T>& dst, const LocalTensor<T>& grad, const LocalTensor<T>& src,
                 const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling, bool isFront = false,
                 const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  cpu::check_work("SoftmaxGrad", where, work);
  SoftmaxGrad<T, isReuseSource, isDataFormatNZ>(dst, grad, src, tiling, isFront, info, where);
}
template <class T, bool isBasicBlock = false, bool isDataFormatNZ = false>
  requires cpu::OneOf<T, half, float>
void SoftmaxGradFront(const LocalTensor<T>& dst, const LocalTensor<T>& grad, const LocalTensor<T>& src,
                      const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},
                      cpu::Where where = cpu::Where::current()) {
  SoftmaxGrad<T, false, isDataFormatNZ>(dst, grad, src, tiling, true, info, where);
}
template <class T, bool isBasicBlock = false, bool isDataFormatNZ = false>
  requires cpu::OneOf<T, half, float>
void SoftmaxGradFront(const LocalTensor<T>& dst, const LocalTensor<T>& grad, const LocalTensor<T>& src,
                      const LocalTensor<uint8_t>& work, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},
                      cpu::Where where = cpu::Where::current()) {
  SoftmaxGrad<T, false, isDataFormatNZ>(dst, grad, src, work, tiling, true, info, where);
}

// The softmax and its decimal logarithm, as CANN documents it.
template <class T, bool isReuseSource = false, bool isDataFormatNZ = false>
  requires cpu::OneOf<T, half, float>
void LogSoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& sum, const LocalTensor<T>& max,
                const LocalTensor<T>& src, const LocalTensor<uint8_t>& work, const LogSoftMaxTiling& tiling,
                const SoftMaxShapeInfo& info = {}, cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "LogSoftMax: the layout NZ is not supported on the CPU");
  constexpr const char* kName = "LogSoftMax";
  cpu::check_work(kName, where, work);
  const cpu::Rows rows = cpu::softmax_rows<T>(kName, where, tiling, info, SOFTMAX_DEFAULT_CFG);
  cpu::check_in_place(kName, where, dst, rows.count * rows.step, src, rows.count * rows.step);
  for (int64_t i = 0; i < rows.count; ++i) {
    std::vector<float> row = cpu::read_row(kName, where, src, i * rows.step, rows.columns), powers = row;
    const float maximum = cpu::largest(row);
    cpu::exponentials(powers, maximum);
    const double total = cpu::sum_of(powers), e = std::log10(std::exp(1.0));
    for (float& number : row) number = static_cast<float>((double{number} - maximum) * e - std::log10(total));
    cpu::write_row(kName, where, dst, i * rows.step, row);
    cpu::statistic(sum, SOFTMAX_DEFAULT_CFG).write(kName, where, i, static_cast<float>(total));
    cpu::statistic(max, SOFTMAX_DEFAULT_CFG).write(kName, where, i, maximum);
  }
}

// Rows whose maximum has the bits of `from` become `to`; whether there are any.
template <class T, class Number, bool isDataFormatNZ = false, uint8_t stepSizeMode = 0>
bool AdjustSoftMaxRes(const LocalTensor<T>& softMaxRes, const LocalTensor<Number>& max, const uint32_t from, const T to,
                      const SoftMaxShapeInfo& info, cpu::Where where = cpu::Where::current()) {
  static_assert(!isDataFormatNZ, "AdjustSoftMaxRes: the layout NZ is not supported on the CPU");
  constexpr const char* kName = "AdjustSoftMaxRes";
  const int64_t step = stepSizeMode != 0 ? 1 : cpu::kPerBlock<Number>;
  bool adjusted = false;
  for (int64_t i = 0; i < info.srcM; ++i) {
    cpu::check_bytes(kName, where, cpu::Use::Read, max.memory(), i * step * sizeof(Number), sizeof(Number));
    uint32_t bits = 0;
    std::memcpy(&bits, max.memory().data + i * step * static_cast<int64_t>(sizeof(Number)), sizeof(Number));
    if (bits != from) continue;
    cpu::write_row(kName, where, softMaxRes, i * info.srcK, std::vector<float>(info.srcK, static_cast<float>(to)));
    adjusted = true;
  }
  return adjusted;
}

}  // namespace AscendC
