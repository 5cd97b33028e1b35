// SPDX-License-Identifier: Apache-2.0
// A product on the matrix unit, station by station.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kRows = 16;

template <class T>
constexpr uint32_t kPiece = 32 / sizeof(T);  // elements of a fractal's row

template <class A>
using SumOf = std::conditional_t<sizeof(A) == 1, int32_t, float>;

enum Load : uint32_t { BY_FRACTALS, BY_SQUARES, BY_IMAGE };

// c[m, n] = a[m, k] b[k, n] (+ bias[n]), a and b perhaps transposed in device memory, in one piece.
template <class T>
class Product {
  using Sum = SumOf<T>;

 public:
  T padding{};  // what L1 has behind the matrices that are copied to it

  Product(TPipe& pipe, uint32_t m, uint32_t n, uint32_t k, bool depth_by_16 = false)
      : pipe_(pipe), m_(m), n_(n), k_(k), depth_(depth_by_16 ? 16 : kPiece<T>) {
    const uint32_t bytes = AlignUp(m, 32u) * AlignUp(k, 64u) * sizeof(T),
                   others = AlignUp(k, 64u) * AlignUp(n, 32u) * sizeof(T);
    pipe_.InitBuffer(a1_, 1, bytes);
    pipe_.InitBuffer(b1_, 1, others);
    pipe_.InitBuffer(a2_, 1, bytes);
    pipe_.InitBuffer(b2_, 1, others);
    pipe_.InitBuffer(sums_, 1, AlignUp(m, kRows) * AlignUp(n, 32u) * sizeof(Sum));
  }

  void LoadLeft(GM_ADDR address, bool transposed, Load load) {
    const LocalTensor<T> a1 = a1_.template AllocTensor<T>();
    Copy(a1, address, transposed ? k_ : m_, transposed ? m_ : k_);
    a1_.EnQue(a1);
    const LocalTensor<T> matrix = a1_.template DeQue<T>(), a2 = a2_.template AllocTensor<T>();
    if (m_ == 1 && !transposed) {
      LoadRow(a2, matrix);
    } else if (load == BY_IMAGE) {
      LoadImage(a2, matrix, transposed ? k_ : m_, transposed ? m_ : k_, transposed);
    } else if (!transposed) {
      for (uint32_t i = 0; i < Ceil(m_, kRows); ++i) {
        LoadData(a2[i * Ceil(k_, kPiece<T>) * kRows * kPiece<T>], matrix[i * kRows * kPiece<T>],
                 LoadData2DParams(0, Ceil(k_, kPiece<T>), Height(m_) / kRows, 0, 0, false, 0));
      }
    } else {
      for (uint32_t i = 0; i < Ceil(m_, kPiece<T>); ++i) {
        LoadTurned(a2[i * Ceil(k_, kRows) * kRows * kPiece<T>], matrix[i * Ceil(k_, kRows) * kRows * kPiece<T>],
                   Ceil(k_, kRows), 1, 0, load);
      }
    }
    a2_.EnQue(a2);
    a1_.FreeTensor(matrix);
  }

  void LoadRight(GM_ADDR address, bool transposed, Load load) {
    const LocalTensor<T> b1 = b1_.template AllocTensor<T>();
    Copy(b1, address, transposed ? n_ : k_, transposed ? k_ : n_);
    b1_.EnQue(b1);
    const LocalTensor<T> matrix = b1_.template DeQue<T>(), b2 = b2_.template AllocTensor<T>();
    if (transposed) {  // its fractals are those of L0B already
      for (uint32_t i = 0; i < Ceil(k_, kPiece<T>); ++i) {
        LoadData(b2[i * AlignUp(n_, kRows) * kPiece<T>], matrix[i * Height(n_) * kPiece<T>],
                 LoadData2DParams(0, Ceil(n_, kRows), 1, 0, 0, false, 0));
      }
    } else if (load == BY_IMAGE) {
      LoadImage(b2, matrix, k_, n_, false);
    } else {
      const uint32_t side = sizeof(T) == 1 ? 32 : 16;
      width_ = AlignUp(n_, side);  // squares are whole
      for (uint32_t i = 0; i < Ceil(k_, side); ++i) {
        const uint32_t columns = Ceil(n_, side), stride = sizeof(T) == 1 ? Ceil(Ceil(k_, kRows), 2u) : Ceil(k_, kRows);
        const uint32_t of_row = sizeof(T) == 1 ? 2 * columns : columns;
        LoadTurned(b2[i * of_row * kRows * kPiece<T>], matrix[i * side * kPiece<T>], columns, stride,
                   sizeof(T) == 1 ? 1 : 0, load);
      }
    }
    b2_.EnQue(b2);
    b1_.FreeTensor(matrix);
  }

  void Multiply(bool accumulate = false) {
    const LocalTensor<T> a = a2_.template DeQue<T>(), b = b2_.template DeQue<T>();
    const LocalTensor<Sum> c = sums_.template AllocTensor<Sum>();
    MmadParams params;
    params.m = m_;
    params.n = width_;
    params.k = k_;
    params.kDirectionAlign = depth_ != kPiece<T>;
    Mmad(c, a, b, params);
    if (accumulate) {  // twice the product
      PipeBarrier<PIPE_M>();
      params.cmatrixInitVal = false;
      Mmad(c, a, b, params);
    }
    sums_.EnQue(c);
    a2_.FreeTensor(a);
    b2_.FreeTensor(b);
  }

  template <class Out>
  void Store(GM_ADDR address, QuantMode_t mode, uint64_t scale, bool relu, bool fractals) {
    const LocalTensor<Sum> c = sums_.template DeQue<Sum>();
    GlobalTensor<Out> out;
    out.SetGlobalBuffer(reinterpret_cast<__gm__ Out*>(address));
    FixpipeParamsV220 params(n_, m_, AlignUp(m_, kRows), n_, relu);
    params.quantPre = mode;
    params.deqScalar = scale;
    if (fractals) {
      params.nSize = AlignUp(n_, kRows);
      params.dstStride = AlignUp(m_, kRows) * kRows * (sizeof(Out) == 1 ? 2 : 1) * sizeof(Out) / 32;
      Fixpipe<Out, Sum, CFG_NZ>(out, c, params);
    } else {
      Fixpipe<Out, Sum, CFG_ROW_MAJOR>(out, c, params);
    }
    sums_.FreeTensor(c);
  }

 protected:
  void Copy(const LocalTensor<T>& to, GM_ADDR address, uint32_t rows, uint32_t columns) {
    GlobalTensor<T> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), rows * columns);
    InitConstValue(to, InitConstValueParams<T>(1, static_cast<uint16_t>(to.GetSize() / kPiece<T>), 0, padding));
    PipeBarrier<PIPE_MTE2>();
    DataCopy(to, from, Nd2NzParams(1, rows, columns, 0, columns, Height(rows), 1, 0));
  }

  // The padded height of a matrix in L1: whole squares.
  static uint32_t Height(uint32_t rows) { return AlignUp(rows, sizeof(T) == 1 ? 32u : kRows); }

  void LoadRow(const LocalTensor<T>& to, const LocalTensor<T>& from) {
    // A row of L0A without fractals is every sixteenth row of the fractals in L1.
    LoadData(to, from, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
  }

  void LoadTurned(const LocalTensor<T>& to, const LocalTensor<T>& from, uint32_t times, uint32_t stride, uint16_t gap,
                  Load load) {
    const auto repeats = static_cast<uint8_t>(times);
    if (load == BY_FRACTALS && sizeof(T) == 2) {
      LoadData(to, from, LoadData2DParams(0, repeats, stride, 0, 0, true, 0));
    } else {
      LoadDataWithTranspose(to, from, LoadData2dTransposeParams(0, repeats, stride, gap, 0));
    }
  }

  void LoadImage(const LocalTensor<T>& to, const LocalTensor<T>& from, uint32_t rows, uint32_t columns,
                 bool transpose) {
    LoadData3DParamsV2<T> params;
    params.l1H = 1;
    params.l1W = Height(rows);
    params.channelSize = AlignUp(columns, depth_);
    params.mExtension = AlignUp(rows, kRows);
    params.kExtension = AlignUp(columns, depth_);
    params.enTranspose = transpose;
    LoadData(to, from, params);
  }

  TPipe& pipe_;
  uint32_t m_, n_, k_, depth_, width_ = n_;  // depth_: what columns are rounded up to in L0A
  TQue<TPosition::A1, 1> a1_;
  TQue<TPosition::B1, 1> b1_;
  TQue<TPosition::A2, 1> a2_;
  TQue<TPosition::B2, 1> b2_;
  TQue<TPosition::CO1, 1> sums_;
};
