// SPDX-License-Identifier: Apache-2.0
// Copies of matrices to the matrix unit: from device memory to L1 (DataCopy with ND to NZ, LoadData), from there to L0A
// and L0B as fractals of 16 rows of 32 bytes (LoadData, LoadDataWithTranspose), to the bias table and the fixpipe
// buffer (DataCopy); and constants in their place (Fill).
#pragma once

#include "ascendc/data_copy.h"

namespace AscendC {

// Matrices of nValue rows of dValue elements, in rows of srcDValue. In L1 an NZ matrix has the rows' pieces of 32 bytes
// dstNzNStride pieces apart, and its columns of pieces dstNzC0Stride; the matrices lie srcNdMatrixStride and
// dstNzMatrixStride elements apart.
struct Nd2NzParams {
  constexpr Nd2NzParams() = default;
  constexpr Nd2NzParams(uint32_t count, uint32_t rows, uint32_t columns, uint32_t src_matrix, uint32_t src_row,
                        uint32_t dst_column, uint32_t dst_row, uint32_t dst_matrix)
      : ndNum(count),
        nValue(rows),
        dValue(columns),
        srcNdMatrixStride(src_matrix),
        srcDValue(src_row),
        dstNzC0Stride(dst_column),
        dstNzNStride(dst_row),
        dstNzMatrixStride(dst_matrix) {}

  uint32_t ndNum = 0, nValue = 0, dValue = 0, srcNdMatrixStride = 0, srcDValue = 0;
  uint32_t dstNzC0Stride = 0, dstNzNStride = 0, dstNzMatrixStride = 0;
};

// repeatTimes fractals, from the startIndex-th on, srcStride fractals apart, to places dstGap fractals apart.
struct LoadData2DParams {
  constexpr LoadData2DParams() = default;
  constexpr LoadData2DParams(uint16_t start, uint8_t repeats, uint16_t src_stride, uint8_t sid, uint16_t dst_gap,
                             bool transpose, uint8_t address_mode)
      : startIndex(start),
        repeatTimes(repeats),
        srcStride(src_stride),
        sid(sid),
        dstGap(dst_gap),
        ifTranspose(transpose),
        addrMode(address_mode) {}

  uint16_t startIndex = 0;
  uint8_t repeatTimes = 0;
  uint16_t srcStride = 0;
  uint8_t sid = 0;
  uint16_t dstGap = 0;
  bool ifTranspose = false;
  uint8_t addrMode = 0;  // 1: the sources go backwards
};
using LoadData2dParams = LoadData2DParams;

// Squares of 16 x 16 elements (32 x 32 of 8 bits), of one or two fractals, which are transposed: dstGap lies between
// the first fractals of squares, dstFracGap between the two of one.
struct LoadData2dTransposeParams {
  constexpr LoadData2dTransposeParams() = default;
  constexpr LoadData2dTransposeParams(uint16_t start, uint8_t repeats, uint16_t src_stride, uint16_t dst_gap,
                                      uint16_t dst_fractal_gap, uint8_t address_mode = 0)
      : startIndex(start),
        repeatTimes(repeats),
        srcStride(src_stride),
        dstGap(dst_gap),
        dstFracGap(dst_fractal_gap),
        addrMode(address_mode) {}

  uint16_t startIndex = 0;
  uint8_t repeatTimes = 0;
  uint16_t srcStride = 0;
  uint16_t dstGap = 0;
  uint16_t dstFracGap = 0;
  uint8_t addrMode = 0;
};

// An image of NC1HWC0 whose windows are the rows of a matrix, and the elements of a window its columns: of that matrix
// mExtension rows from mStartPt on and kExtension columns from kStartPt on. Windows of 1 x 1 make of an NZ matrix in L1
// fractals in L0A, or, transposed, in L0B.
template <class T>
struct LoadData3DParamsV2 {
  uint8_t padList[4] = {};  // left, right, top, bottom
  uint16_t l1H = 0, l1W = 0;
  uint16_t channelSize = 0;
  uint16_t kExtension = 0, mExtension = 0;
  uint16_t kStartPt = 0, mStartPt = 0;
  uint8_t strideW = 1, strideH = 1;
  uint8_t filterW = 1, filterH = 1;
  uint8_t dilationFilterW = 1, dilationFilterH = 1;
  bool enTranspose = false;
  bool enSmallK = false;
  T padValue = T{};
  bool filterSizeW = false, filterSizeH = false;  // 256 more
  bool fMatrixCtrl = false;                       // the image as SetFmatrix says for the right matrix
};

// The same, in registers: the image as SetFmatrix and SetLoadDataPaddingValue have set it, the part of the matrix and
// the windows packed in 64 bits each.
struct LoadData3DParamsV2Pro {
  uint16_t channelSize = 0;
  bool enTranspose = false, enSmallK = false;
  bool filterSizeW = false, filterSizeH = false;
  bool fMatrixCtrl = false;
  uint64_t extConfig = 0;                 // from bit 0 on, of 16 bits: kExtension, mExtension, kStartPt, mStartPt
  uint64_t filterConfig = 0x10101010101;  // of 8 bits: strideW, strideH, filterW, filterH, dilationFilterW, ...H
};

// LoadData of an image is done repeatTime times, from places repeatStride apart: in 16 rows of the matrix, or, with
// repeatMode 1, in columns of 32 bytes. All of it becomes one matrix.
struct LoadDataRepeatParam {
  constexpr LoadDataRepeatParam() = default;
  constexpr LoadDataRepeatParam(uint16_t stride, uint8_t times, uint8_t mode)
      : repeatStride(stride), repeatTime(times), repeatMode(mode) {}

  uint16_t repeatStride = 0;
  uint8_t repeatTime = 1;
  uint8_t repeatMode = 0;
};

// Whether LoadData sets the image's size and padding itself, or SetFmatrix and SetLoadDataPaddingValue have.
struct IsResetLoad3dConfig {
  bool isSetFMatrix = true;
  bool isSetPadding = true;
};
inline constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};

enum class FmatrixMode : uint8_t { FMATRIX_LEFT, FMATRIX_RIGHT };

// blockNum pieces (32 bytes in L1, a fractal in L0A and L0B), repeatTimes times, dstGap pieces apart.
template <class T>
struct InitConstValueParams {
  constexpr InitConstValueParams() = default;
  constexpr InitConstValueParams(uint16_t repeats, uint16_t blocks, uint16_t gap, T value)
      : repeatTimes(repeats), blockNum(blocks), dstGap(gap), initValue(value) {}
  constexpr InitConstValueParams(uint16_t repeats, T value) : repeatTimes(repeats), initValue(value) {}

  uint16_t repeatTimes = 0;
  uint16_t blockNum = 1;
  uint16_t dstGap = 0;
  T initValue = T{};
};

namespace cpu {

// What LoadData takes the elements for; they are only moved.
struct Image {
  Fmatrix size;
  uint64_t padding;
  int64_t channels;
  int64_t rows, columns, first_row, first_column;
  int64_t stride_w, stride_h, filter_w, filter_h, dilation_w, dilation_h;
  bool transpose;
  ImageRepeats repeats;
};

ASCENDC_CPU_EXPORT void copy_nd_to_nz(Where where, const LocalMemory& dst, const GlobalMemory& src, uint32_t itemsize,
                                      const Nd2NzParams& params);
ASCENDC_CPU_EXPORT void load_fractals(Where where, const LocalMemory& dst, const LocalMemory* local,
                                      const GlobalMemory* global, uint32_t itemsize, const LoadData2DParams& params);
ASCENDC_CPU_EXPORT void load_transposed(Where where, const LocalMemory& dst, const LocalMemory& src, uint32_t itemsize,
                                        const LoadData2dTransposeParams& params);
ASCENDC_CPU_EXPORT void load_image(Where where, const LocalMemory& dst, const LocalMemory& src, uint32_t itemsize,
                                   const Image& image);
ASCENDC_CPU_EXPORT void fill_pieces(Where where, const LocalMemory& dst, uint32_t itemsize, uint64_t value,
                                    const InitConstValueParams<uint64_t>& params);

template <class T>
uint64_t bits_of(const T& value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

}  // namespace cpu

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& intriParams,
              cpu::Where where = cpu::Where::current()) {
  cpu::copy_nd_to_nz(where, dst.memory(), src.memory(), sizeof(T), intriParams);
}

template <class T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParams& loadDataParams,
              cpu::Where where = cpu::Where::current()) {
  cpu::load_fractals(where, dst.memory(), &src.memory(), nullptr, sizeof(T), loadDataParams);
}
template <class T>
void LoadData(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LoadData2DParams& loadDataParams,
              cpu::Where where = cpu::Where::current()) {
  cpu::load_fractals(where, dst.memory(), nullptr, &src.memory(), sizeof(T), loadDataParams);
}
template <class T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                           const LoadData2dTransposeParams& loadDataParams, cpu::Where where = cpu::Where::current()) {
  cpu::needs<T>("LoadDataWithTranspose", where);
  cpu::load_transposed(where, dst.memory(), src.memory(), sizeof(T), loadDataParams);
}

inline void SetFmatrix(uint16_t l1H, uint16_t l1W, const uint8_t padList[4], const FmatrixMode& fmatrixMode,
                       cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.fmatrix[static_cast<size_t>(fmatrixMode)] = {
      l1H, l1W, {padList[0], padList[1], padList[2], padList[3]}};
}
template <class T>
void SetLoadDataPaddingValue(const T padValue, cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.padding = cpu::bits_of(padValue);
}

inline void SetLoadDataRepeat(const LoadDataRepeatParam& repeatParams, cpu::Where where = cpu::Where::current()) {
  const auto& p = repeatParams;
  if (p.repeatMode > 1)
    cpu::fail(where, "SetLoadDataRepeat: repeatMode %u; 0: along rows, 1: along columns", p.repeatMode);
  cpu::block(where).matrix_unit.repeats = {p.repeatStride, p.repeatTime, p.repeatMode == 1};
}
inline void SetLoadDataBoundary(uint32_t boundaryValue, cpu::Where where = cpu::Where::current()) {
  if (boundaryValue != 0) {
    cpu::fail(where,
              "SetLoadDataBoundary: %u; an image that continues at the beginning of L1 is not supported, only 0 is",
              boundaryValue);
  }
}

template <class T, const IsResetLoad3dConfig& defaultConfig = IS_RESER_LOAD3D_DEFAULT_CONFIG, class U>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<U>& p,
              cpu::Where where = cpu::Where::current()) {
  static_assert(sizeof(T) == sizeof(U), "LoadData: padValue has the dtype of the tensors");
  if (p.enSmallK) cpu::fail(where, "LoadData: enSmallK; Atlas A2 does not have it any more");
  cpu::MatrixUnit& unit = cpu::block(where).matrix_unit;
  cpu::Fmatrix& size = unit.fmatrix[p.fMatrixCtrl ? 1 : 0];
  if (defaultConfig.isSetFMatrix) {
    size = {p.l1H, p.l1W, {p.padList[0], p.padList[1], p.padList[2], p.padList[3]}};
  }
  if (defaultConfig.isSetPadding) unit.padding = cpu::bits_of(p.padValue);
  cpu::load_image(where, dst.memory(), src.memory(), sizeof(T),
                  {size, unit.padding, p.channelSize, p.mExtension, p.kExtension, p.mStartPt, p.kStartPt, p.strideW,
                   p.strideH, p.filterW + (p.filterSizeW ? 256 : 0), p.filterH + (p.filterSizeH ? 256 : 0),
                   p.dilationFilterW, p.dilationFilterH, p.enTranspose, unit.repeats});
}
template <class T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2Pro& loadDataParams,
              cpu::Where where = cpu::Where::current()) {
  static constexpr IsResetLoad3dConfig kAsSet = {false, false};
  const LoadData3DParamsV2Pro& p = loadDataParams;
  const auto part = [&](int i) { return static_cast<uint16_t>(p.extConfig >> (16 * i)); };
  const auto window = [&](int i) { return static_cast<uint8_t>(p.filterConfig >> (8 * i)); };
  LoadData3DParamsV2<T> all;
  all.channelSize = p.channelSize;
  all.kExtension = part(0), all.mExtension = part(1), all.kStartPt = part(2), all.mStartPt = part(3);
  all.strideW = window(0), all.strideH = window(1), all.filterW = window(2), all.filterH = window(3);
  all.dilationFilterW = window(4), all.dilationFilterH = window(5);
  all.enTranspose = p.enTranspose, all.enSmallK = p.enSmallK;
  all.filterSizeW = p.filterSizeW, all.filterSizeH = p.filterSizeH, all.fMatrixCtrl = p.fMatrixCtrl;
  LoadData<T, kAsSet>(dst, src, all, where);
}

template <class T>
void Fill(const LocalTensor<T>& dst, const InitConstValueParams<T>& initConstValueParams,
          cpu::Where where = cpu::Where::current()) {
  const auto& p = initConstValueParams;
  cpu::fill_pieces(where, dst.memory(), sizeof(T), cpu::bits_of(p.initValue), {p.repeatTimes, p.blockNum, p.dstGap, 0});
}
template <class T>
void InitConstValue(const LocalTensor<T>& dst, const InitConstValueParams<T>& initConstValueParams,
                    cpu::Where where = cpu::Where::current()) {
  Fill(dst, initConstValueParams, where);
}

}  // namespace AscendC
