// SPDX-License-Identifier: Apache-2.0
// c = a b of half matrices, a [m, k], b [k, n]: the matrix unit of docs/ascendc_kernels.md.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kM = 128, kN = 256, kK = 64;  // of the sums that fill L0C, and the depth of factors in L0A and L0B
constexpr uint32_t kBuffers = 2;                 // one is copied while the other is computed with
constexpr uint32_t kFractal = 16;                // rows and columns
constexpr uint32_t kElements = kFractal * kFractal;

class MatrixProduct {
 public:
  __aicore__ inline MatrixProduct(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k)
      : m_(m), n_(n), k_(k) {
    a_.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(a), uint64_t{m} * k);
    b_.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(b), uint64_t{k} * n);
    c_.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(c), uint64_t{m} * n);
    pipe_.InitBuffer(a1_, kBuffers, kM * kK * sizeof(half));
    pipe_.InitBuffer(b1_, kBuffers, kK * kN * sizeof(half));
    pipe_.InitBuffer(a2_, kBuffers, kM * kK * sizeof(half));
    pipe_.InitBuffer(b2_, kBuffers, kK * kN * sizeof(half));
    pipe_.InitBuffer(sums_, 1, kM * kN * sizeof(float));
  }

  // Each block has every GetBlockNum()-th tile of c.
  __aicore__ inline void Compute() {
    const uint32_t columns = CeilDivision(n_, kN), tiles = CeilDivision(m_, kM) * columns;
    for (uint32_t tile = GetBlockIdx(); tile < tiles; tile += GetBlockNum()) {
      row_ = tile / columns * kM;
      column_ = tile % columns * kN;
      rows_ = Smaller(kM, m_ - row_);
      width_ = Smaller(kN, n_ - column_);
      ComputeTile();
    }
  }

 private:
  __aicore__ static inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

  __aicore__ inline void ComputeTile() {
    const LocalTensor<float> sums = sums_.AllocTensor<float>();
    for (uint32_t first = 0; first < k_; first += kK) {
      const uint32_t depth = Smaller(kK, k_ - first);
      CopyIn(first, depth);
      Load(a1_, a2_, rows_, depth, false);
      Load(b1_, b2_, depth, width_, true);
      Multiply(sums, depth, first == 0);
    }
    sums_.EnQue(sums);
    CopyOut();
  }

  // From device memory to L1, row after row of 16 columns.
  __aicore__ inline void CopyIn(uint32_t first, uint32_t depth) {
    const LocalTensor<half> a = a1_.AllocTensor<half>(), b = b1_.AllocTensor<half>();
    DataCopy(a, a_[uint64_t{row_} * k_ + first], Nd2NzParams(1, rows_, depth, 0, k_, AlignUp(rows_, kFractal), 1, 0));
    DataCopy(b, b_[uint64_t{first} * n_ + column_],
             Nd2NzParams(1, depth, width_, 0, n_, AlignUp(depth, kFractal), 1, 0));
    a1_.EnQue(a);
    b1_.EnQue(b);
  }

  // From L1 to L0, which has the fractals row by row; each of b's is transposed on the way.
  template <class Source, class Target>
  __aicore__ inline void Load(Source& source, Target& target, uint32_t height, uint32_t width, bool transposed) {
    const LocalTensor<half> from = source.template DeQue<half>(), to = target.template AllocTensor<half>();
    const uint32_t across = CeilDivision(width, kFractal), down = CeilDivision(height, kFractal);
    for (uint32_t i = 0; i < down; ++i) {
      LoadData(to[i * across * kElements], from[i * kElements],
               LoadData2DParams(0, static_cast<uint8_t>(across), static_cast<uint16_t>(down), 0, 0, transposed, 0));
    }
    target.EnQue(to);
    source.FreeTensor(from);
  }

  __aicore__ inline void Multiply(const LocalTensor<float>& sums, uint32_t depth, bool from_zero) {
    const LocalTensor<half> a = a2_.DeQue<half>(), b = b2_.DeQue<half>();
    MmadParams params;
    params.m = AlignUp(rows_, kFractal);  // not 1, which would be a vector and lie otherwise in L0A
    params.n = width_;
    params.k = depth;
    params.cmatrixInitVal = from_zero;
    Mmad(sums, a, b, params);
    if (params.m / kFractal * (params.n / kFractal) < 10) PipeBarrier<PIPE_M>();  // larger ones wait for each other
    a2_.FreeTensor(a);
    b2_.FreeTensor(b);
  }

  __aicore__ inline void CopyOut() {
    const LocalTensor<float> sums = sums_.DeQue<float>();
    FixpipeParamsV220 params(width_, rows_, AlignUp(rows_, kFractal), n_, false);
    params.quantPre = QuantMode_t::F322F16;
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
  GlobalTensor<half> a_, b_, c_;
};

extern "C" __global__ __aicore__ void matmul(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  MatrixProduct(a, b, c, m, n, k).Compute();
}
