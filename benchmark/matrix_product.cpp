// SPDX-License-Identifier: Apache-2.0
// c = a b, a [m, k], b [k, n], as an author writes it with Mmad, for each dtype of the matrix unit. n and k are
// multiples of 32.
#include "op_kernel/matrix.h"

using namespace AscendC;
using opp::kFractal;

constexpr uint32_t kM = 128, kN = 256;  // of the sums that fill L0C
constexpr uint32_t kDepthBytes = 128;   // of factors in L0A and L0B
constexpr uint32_t kBuffers = 2;        // one is copied while the other is computed with

template <class T, class Out>
class MatrixProduct {
  using Sum = opp::SumOf<T>;
  static constexpr uint32_t kPiece = opp::kFractalColumns<T>;
  static constexpr uint32_t kDepth = kDepthBytes / sizeof(T);
  static constexpr uint32_t kSide = opp::kSquare<T>;

 public:
  __aicore__ inline MatrixProduct(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k)
      : m_(m), n_(n), k_(k) {
    a_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(a), uint64_t{m} * k);
    b_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(b), uint64_t{k} * n);
    c_.SetGlobalBuffer(reinterpret_cast<__gm__ Out*>(c), uint64_t{m} * n);
    pipe_.InitBuffer(a1_, kBuffers, kM * kDepthBytes);
    pipe_.InitBuffer(b1_, kBuffers, kN * kDepthBytes);
    pipe_.InitBuffer(a2_, kBuffers, kM * kDepthBytes);
    pipe_.InitBuffer(b2_, kBuffers, kN * kDepthBytes);
    pipe_.InitBuffer(sums_, 1, kM * kN * sizeof(Sum));
  }

  // Each block has every GetBlockNum()-th tile of c.
  __aicore__ inline void Compute() {
    const uint32_t columns = CeilDivision(n_, kN), tiles = CeilDivision(m_, kM) * columns;
    for (uint32_t tile = GetBlockIdx(); tile < tiles; tile += GetBlockNum()) {
      row_ = tile / columns * kM;
      column_ = tile % columns * kN;
      rows_ = Smaller(kM, m_ - row_);
      width_ = Smaller(kN, n_ - column_);
      const LocalTensor<Sum> sums = sums_.template AllocTensor<Sum>();
      for (uint32_t first = 0; first < k_; first += kDepth) {
        const uint32_t depth = Smaller(kDepth, k_ - first);
        CopyIn(first, depth);
        LoadLeft(depth);
        LoadRight(depth);
        Multiply(sums, depth, first == 0);
      }
      sums_.EnQue(sums);
      CopyOut();
    }
  }

 private:
  __aicore__ static inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

  __aicore__ inline void CopyIn(uint32_t first, uint32_t depth) {
    const LocalTensor<T> a = a1_.template AllocTensor<T>(), b = b1_.template AllocTensor<T>();
    DataCopy(a, a_[uint64_t{row_} * k_ + first], Nd2NzParams(1, rows_, depth, 0, k_, AlignUp(rows_, kFractal), 1, 0));
    // Two fractals of 4 bytes that are transposed together lie beside each other.
    const uint32_t height = sizeof(T) == 4 ? kFractal : depth;
    for (uint32_t i = 0; i < depth; i += height) {
      DataCopy(b[i * width_], b_[uint64_t{first + i} * n_ + column_],
               Nd2NzParams(1, height, width_, 0, n_, height, 1, 0));
    }
    a1_.EnQue(a);
    b1_.EnQue(b);
  }

  __aicore__ inline void LoadLeft(uint32_t depth) {
    const LocalTensor<T> from = a1_.template DeQue<T>(), to = a2_.template AllocTensor<T>();
    opp::LoadLeft(to, from, AlignUp(rows_, kFractal), rows_, depth / kPiece);
    a2_.EnQue(to);
    a1_.FreeTensor(from);
  }

  __aicore__ inline void LoadRight(uint32_t depth) {
    const LocalTensor<T> from = b1_.template DeQue<T>(), to = b2_.template AllocTensor<T>();
    const uint32_t squares = width_ / kSide, stride = depth / kSide;
    for (uint32_t i = 0; i < depth; i += kSide) {
      const LocalTensor<T> row = to[i * width_];
      if constexpr (sizeof(T) == 2) {
        LoadData(row, from[i * kPiece],
                 LoadData2DParams(0, static_cast<uint8_t>(squares), static_cast<uint16_t>(stride), 0, 0, true, 0));
      } else if constexpr (sizeof(T) == 1) {
        LoadDataWithTranspose(
            row, from[i * kPiece],
            LoadData2dTransposeParams(0, static_cast<uint8_t>(squares), static_cast<uint16_t>(stride), 1, 0));
      } else {
        LoadDataWithTranspose(
            row, from[i * width_],
            LoadData2dTransposeParams(0, static_cast<uint8_t>(squares), 1, 0, static_cast<uint16_t>(squares - 1)));
      }
    }
    b2_.EnQue(to);
    b1_.FreeTensor(from);
  }

  __aicore__ inline void Multiply(const LocalTensor<Sum>& sums, uint32_t depth, bool from_zero) {
    const LocalTensor<T> a = a2_.template DeQue<T>(), b = b2_.template DeQue<T>();
    opp::Multiply(sums, a, b, rows_, width_, depth, from_zero);
    a2_.FreeTensor(a);
    b2_.FreeTensor(b);
  }

  __aicore__ inline void CopyOut() {
    const LocalTensor<Sum> sums = sums_.template DeQue<Sum>();
    FixpipeParamsV220 params(width_, rows_, AlignUp(rows_, kFractal), n_, false);
    if constexpr (std::is_same_v<Out, half>) params.quantPre = QuantMode_t::F322F16;
    if constexpr (std::is_same_v<Out, bfloat16_t>) params.quantPre = QuantMode_t::F322BF16;
    Fixpipe(c_[uint64_t{row_} * n_ + column_], sums, params);
    sums_.FreeTensor(sums);
  }

  const uint32_t m_, n_, k_;
  uint32_t row_, column_, rows_, width_;  // of c, the tile at work
  TPipe pipe_;
  TQue<TPosition::A1, kBuffers> a1_;
  TQue<TPosition::B1, kBuffers> b1_;
  TQue<TPosition::A2, kBuffers> a2_;
  TQue<TPosition::B2, kBuffers> b2_;
  TQue<TPosition::CO1, 1> sums_;
  GlobalTensor<T> a_, b_;
  GlobalTensor<Out> c_;
};

#define PRODUCT(name, T, Out)                                                                                       \
  extern "C" __global__ __aicore__ void name(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k) { \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);                                                                 \
    MatrixProduct<T, Out>(a, b, c, m, n, k).Compute();                                                              \
  }
PRODUCT(float16, half, half)
PRODUCT(bfloat16, bfloat16_t, bfloat16_t)
PRODUCT(float32, float, float)
PRODUCT(int8, int8_t, int32_t)
