// SPDX-License-Identifier: Apache-2.0
// Products on the matrix unit of factors that lie in L1 as NZ matrices: columns of fractals, 16 rows of 32 bytes each.
#pragma once

#include "kernel_operator.h"

namespace opp {

constexpr uint32_t kFractal = 16;  // rows
template <class T>
constexpr uint32_t kFractalColumns = 32 / sizeof(T);
template <class T>
constexpr uint32_t kFractalElements = kFractal * kFractalColumns<T>;

// The type of sums of products of T.
template <class T>
using SumOf = std::conditional_t<sizeof(T) == 1, int32_t, float>;

// The left factor, of `rows` rows and `across` fractals a row, from a matrix that has `height` rows in L1.
template <class T>
__aicore__ inline void LoadLeft(const AscendC::LocalTensor<T>& to, const AscendC::LocalTensor<T>& from, uint32_t height,
                                uint32_t rows, uint32_t across) {
  for (uint32_t i = 0; i < AscendC::CeilDivision(rows, kFractal); ++i) {
    AscendC::LoadData(to[i * across * kFractalElements<T>], from[i * kFractalElements<T>],
                      AscendC::LoadData2DParams(0, static_cast<uint8_t>(across),
                                                static_cast<uint16_t>(height / kFractal), 0, 0, false, 0));
  }
}

// The right factor, of `deep` fractals a column, from a matrix in L1 whose rows are its columns: in a left . right^T.
template <class T>
__aicore__ inline void LoadRightOfRows(const AscendC::LocalTensor<T>& to, const AscendC::LocalTensor<T>& from,
                                       uint32_t height, uint32_t rows, uint32_t deep) {
  constexpr uint32_t kMaxRepeats = 255;
  const uint32_t across = AscendC::CeilDivision(rows, kFractal);
  if (across * kFractal == height && across * deep <= kMaxRepeats) {  // the fractals lie as they will
    AscendC::LoadData(to, from, AscendC::LoadData2DParams(0, static_cast<uint8_t>(across * deep), 1, 0, 0, false, 0));
    return;
  }
  for (uint32_t i = 0; i < deep; ++i) {
    AscendC::LoadData(to[i * across * kFractalElements<T>], from[i * height * kFractalColumns<T>],
                      AscendC::LoadData2DParams(0, static_cast<uint8_t>(across), 1, 0, 0, false, 0));
  }
}

// Rows and columns of the squares that are transposed at once, one or two fractals; what a right factor is a multiple
// of.
template <class T>
constexpr uint32_t kSquare = kFractalColumns<T> > kFractal ? kFractalColumns<T> : kFractal;

// The right factor, of `rows` rows and `across` fractals a row, from a matrix that has `height` rows in L1, a multiple
// of kSquare.
template <class T>
__aicore__ inline void LoadRight(const AscendC::LocalTensor<T>& to, const AscendC::LocalTensor<T>& from,
                                 uint32_t height, uint32_t rows, uint32_t across) {
  constexpr uint32_t kFractals = kSquare<T> / kFractal;  // of a square
  const auto repeats = static_cast<uint8_t>(across);
  const auto stride = static_cast<uint16_t>(height / kSquare<T>);
  for (uint32_t i = 0; i < AscendC::CeilDivision(rows, kSquare<T>); ++i) {
    const AscendC::LocalTensor<T> row = to[i * across * kFractals * kFractalElements<T>],
                                  squares = from[i * kSquare<T> * kFractalColumns<T>];
    if constexpr (kFractals == 1) {
      AscendC::LoadData(row, squares, AscendC::LoadData2DParams(0, repeats, stride, 0, 0, true, 0));
    } else {
      AscendC::LoadDataWithTranspose(row, squares,
                                     AscendC::LoadData2dTransposeParams(0, repeats, stride, kFractals - 1, 0));
    }
  }
}

// sums = left . right, or adds that to them. m, n and k are sizes, not rounded up to fractals.
template <class Sum, class T>
__aicore__ inline void Multiply(const AscendC::LocalTensor<Sum>& sums, const AscendC::LocalTensor<T>& left,
                                const AscendC::LocalTensor<T>& right, uint32_t m, uint32_t n, uint32_t k,
                                bool from_zero) {
  AscendC::MmadParams params;
  params.m = m == 1 ? kFractal : m;  // 1 would be a vector and lie otherwise in L0A
  params.n = n;
  params.k = k;
  params.cmatrixInitVal = from_zero;
  AscendC::Mmad(sums, left, right, params);
  // Products of ten whole fractals or more wait for each other.
  if (params.m / kFractal * (n / kFractal) < 10) AscendC::PipeBarrier<PIPE_M>();
}

}  // namespace opp
