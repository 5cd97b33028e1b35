// SPDX-License-Identifier: Apache-2.0
// The matrix unit: a product by each way of loading, its sums by each way out, and cores that wait for each other.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

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
  Product(uint32_t m, uint32_t n, uint32_t k) : m_(m), n_(n), k_(k) {
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

 private:
  void Copy(const LocalTensor<T>& to, GM_ADDR address, uint32_t rows, uint32_t columns) {
    GlobalTensor<T> from;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), rows * columns);
    InitConstValue(to, InitConstValueParams<T>(1, static_cast<uint16_t>(to.GetSize() / kPiece<T>), 0, T(0)));
    PipeBarrier<PIPE_MTE2>();
    DataCopy(to, from, Nd2NzParams(1, rows, columns, 0, columns, Height(rows), 1, 0));
  }

  // Of a matrix in L1: whole squares.
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
    params.channelSize = AlignUp(columns, kPiece<T>);
    params.mExtension = AlignUp(rows, kRows);
    params.kExtension = AlignUp(columns, kPiece<T>);
    params.enTranspose = transpose;
    LoadData(to, from, params);
  }

  uint32_t m_, n_, k_, width_ = n_;
  TPipe pipe_;
  TQue<TPosition::A1, 1> a1_;
  TQue<TPosition::B1, 1> b1_;
  TQue<TPosition::A2, 1> a2_;
  TQue<TPosition::B2, 1> b2_;
  TQue<TPosition::CO1, 1> sums_;
};

template <class T, class Out>
void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k, uint32_t load, uint32_t left,
             uint32_t right, uint32_t twice, uint32_t mode, uint64_t scale, uint32_t relu, uint32_t fractals) {
  Product<T> product(m, n, k);
  product.LoadLeft(a, left != 0, static_cast<Load>(load));
  product.LoadRight(b, right != 0, static_cast<Load>(load));
  product.Multiply(twice != 0);
  product.template Store<Out>(c, static_cast<QuantMode_t>(mode), scale, relu != 0, fractals != 0);
}

}  // namespace

#define PRODUCT(name, T, Out)                                                                                     \
  extern "C" __global__ __aicore__ void name(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k, \
                                             uint32_t load, uint32_t left, uint32_t right, uint32_t twice,        \
                                             uint32_t mode, uint64_t scale, uint32_t relu, uint32_t fractals) {   \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);                                                               \
    product<T, Out>(a, b, c, m, n, k, load, left, right, twice, mode, scale, relu, fractals);                     \
  }
PRODUCT(half_to_float, half, float)
PRODUCT(half_to_half, half, half)
PRODUCT(half_to_int8, half, int8_t)
PRODUCT(bfloat16_to_float, bfloat16_t, float)
PRODUCT(bfloat16_to_bfloat16, bfloat16_t, bfloat16_t)
PRODUCT(float_to_float, float, float)
PRODUCT(int8_to_int32, int8_t, int32_t)
PRODUCT(int8_to_half, int8_t, half)
PRODUCT(int8_to_int8, int8_t, int8_t)

// c = a b of [16, 16] on the cube core, in device memory; the vector cores of its block add 1 to half of it each.
template <bool aiv_waits, bool aic_waits>
__aicore__ inline void product_and_sum(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, uint32_t rounds) {
  constexpr uint16_t kDone = 3, kRead = 4;
  if ASCEND_IS_AIC {
    for (uint32_t round = 0; round < rounds; ++round) {
      const int64_t offset = GetBlockIdx() * 256;
      if (aic_waits && round > 0) CrossCoreWaitFlag(kRead);
      Product<half> product(16, 16, 16);
      product.LoadLeft(a + offset * sizeof(half), false, BY_FRACTALS);
      product.LoadRight(b + offset * sizeof(half), false, BY_FRACTALS);
      product.Multiply();
      product.template Store<float>(c + offset * sizeof(float), NoQuant, 0, false, false);
      CrossCoreSetFlag<2, PIPE_FIX>(kDone);
      PipeBarrier<PIPE_ALL>();
    }
  }
  if ASCEND_IS_AIV {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 128 * sizeof(float));
    const LocalTensor<float> half_of_it = buffer.Get<float>();
    GlobalTensor<float> sums, result;
    sums.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(c) + GetBlockIdx() * 128, 128);
    result.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + GetBlockIdx() * 128, 128);
    for (uint32_t round = 0; round < rounds; ++round) {
      if (aiv_waits) CrossCoreWaitFlag(kDone);
      DataCopy(half_of_it, sums, 128);
      if (aic_waits && round + 1 < rounds) CrossCoreSetFlag<2, PIPE_MTE2>(kRead);
      PipeBarrier<PIPE_ALL>();
      Adds(half_of_it, half_of_it, 1.0f, 128);
      PipeBarrier<PIPE_ALL>();
      DataCopy(result, half_of_it, 128);
      PipeBarrier<PIPE_ALL>();
    }
    if (!aiv_waits) CrossCoreWaitFlag(kDone);
  }
}

extern "C" __global__ __aicore__ void mixed(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, uint32_t rounds) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  product_and_sum<true, true>(a, b, c, y, rounds);
}
// The same, without saying what it is.
extern "C" __global__ __aicore__ void mixed_unsaid(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, uint32_t rounds) {
  product_and_sum<true, true>(a, b, c, y, rounds);
}
extern "C" __global__ __aicore__ void reads_before_it_waits(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y,
                                                            uint32_t rounds) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  product_and_sum<false, true>(a, b, c, y, rounds);
}
extern "C" __global__ __aicore__ void writes_again_before_it_waits(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y,
                                                                   uint32_t rounds) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  product_and_sum<true, false>(a, b, c, y, rounds);
}

// Where a kernel runs: each core writes what it is asked for, in 8 numbers of its own.
template <bool cube>
__aicore__ inline void write_place(GM_ADDR y, uint32_t kind) {
  GlobalTensor<int32_t> place;
  place.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y));
  const int64_t at = (GetBlockIdx() * 3 + kind) * 16;
  const int64_t all[] = {GetBlockIdx(), GetBlockNum(), GetSubBlockIdx(), GetSubBlockNum(), GetTaskRatio()};
  for (uint32_t i = 0; i < 5; ++i) place.SetValue(at + i, static_cast<int32_t>(all[i]));
  DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(place);
}
extern "C" __global__ __aicore__ void places_1_2(GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if ASCEND_IS_AIC
    write_place<true>(y, 1);
  if ASCEND_IS_AIV
    write_place<false>(y, 2);
}
extern "C" __global__ __aicore__ void places_1_1(GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  if ASCEND_IS_AIC
    write_place<true>(y, 1);
  if ASCEND_IS_AIV
    write_place<false>(y, 2);
}
extern "C" __global__ __aicore__ void places_aic(GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  if ASCEND_IS_AIC
    write_place<true>(y, 1);
  if ASCEND_IS_AIV
    write_place<false>(y, 2);
}
// It asks, and uses no cube core: it is for vector cores.
extern "C" __global__ __aicore__ void places_unsaid(GM_ADDR y) {
  if ASCEND_IS_AIC
    return;
  write_place<false>(y, 2);
}

// Both halves stand without ASCEND_IS_AIC and ASCEND_IS_AIV: each core leaves the other's out.
extern "C" __global__ __aicore__ void unguarded(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR x, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  {
    Product<half> product(16, 16, 16);
    product.LoadLeft(a, false, BY_FRACTALS);
    product.LoadRight(b, false, BY_FRACTALS);
    product.Multiply();
    product.template Store<float>(c, NoQuant, 0, false, false);
  }
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in;
  pipe.InitBuffer(in, 1, 128 * sizeof(float));
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x) + GetSubBlockIdx() * 128, 128);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + GetSubBlockIdx() * 128, 128);
  in.EnQue(in.AllocTensor<float>());
  const LocalTensor<float> numbers = in.DeQue<float>();
  DataCopy(numbers, from, 128);
  PipeBarrier<PIPE_ALL>();
  Adds(numbers, numbers, 1.0f, 128);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, numbers, 128);
  in.FreeTensor(numbers);
}
