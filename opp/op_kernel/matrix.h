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
  const uint32_t across = AscendC::CeilDivision(rows, kFractal);
  for (uint32_t i = 0; i < deep; ++i) {
    AscendC::LoadData(to[i * across * kFractalElements<T>], from[i * height * kFractalColumns<T>],
                      AscendC::LoadData2DParams(0, static_cast<uint8_t>(across), 1, 0, 0, false, 0));
  }
}

// The right factor, of `rows` rows and `across` fractals a row, from a matrix that has `height` rows in L1, of 16 bits.
template <class T>
__aicore__ inline void LoadRight(const AscendC::LocalTensor<T>& to, const AscendC::LocalTensor<T>& from,
                                 uint32_t height, uint32_t rows, uint32_t across) {
  static_assert(sizeof(T) == 2, "fractals of 16 rows of 16 elements alone are transposed so");
  for (uint32_t i = 0; i < AscendC::CeilDivision(rows, kFractal); ++i) {
    AscendC::LoadData(to[i * across * kFractalElements<T>], from[i * kFractalElements<T>],
                      AscendC::LoadData2DParams(0, static_cast<uint8_t>(across),
                                                static_cast<uint16_t>(height / kFractal), 0, 0, true, 0));
  }
}

// sums = left . right, or adds that to them. m, n and k are sizes, not rounded up to fractals.
template <class Sum, class T>
__aicore__ inline void Multiply(const AscendC::LocalTensor<Sum>& sums, const AscendC::LocalTensor<T>& left,
                                const AscendC::LocalTensor<T>& right, uint32_t m, uint32_t n, uint32_t k,
                                bool from_zero) {
  AscendC::MmadParams params;
  params.m = AscendC::AlignUp(m, kFractal);  // not 1, which would be a vector and lie otherwise in L0A
  params.n = n;
  params.k = k;
  params.cmatrixInitVal = from_zero;
  AscendC::Mmad(sums, left, right, params);
  // Larger products wait for each other.
  if (params.m / kFractal * AscendC::CeilDivision(n, kFractal) < 10) AscendC::PipeBarrier<PIPE_M>();
}

}  // namespace opp
