// SPDX-License-Identifier: Apache-2.0
// The matrix unit: a product by each way of loading, its sums by each way out, and cores that wait for each other.
#include "product.h"

namespace {

template <class T, class Out>
void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k, uint32_t load, uint32_t left,
             uint32_t right, uint32_t twice, uint32_t mode, uint64_t scale, uint32_t relu, uint32_t fractals) {
  TPipe pipe;
  Product<T> product(pipe, m, n, k);
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

// With infinity in the rows behind the k-th of the right matrix.
extern "C" __global__ __aicore__ void before_infinity(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n,
                                                      uint32_t k, uint32_t load) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  Product<bfloat16_t> product(pipe, m, n, k);
  product.LoadLeft(a, false, static_cast<Load>(load));
  product.padding = ToBfloat16(__builtin_inff());
  product.LoadRight(b, false, static_cast<Load>(load));
  product.Multiply();
  product.Store<float>(c, NoQuant, 0, false, false);
}

// The sums of [20, 24] by the older parameters: as rows, and as stripes of 32 rows in which the last 12 stay.
struct InBursts : Product<half> {
  using Product::Product;
  void Store(GM_ADDR rows, GM_ADDR stripes) {
    const LocalTensor<float> sums = sums_.DeQue<float>();
    LocalTensor<float> c;
    c.InitBuffer(0, 32 * 32);
    c.address_.logicPos = static_cast<uint8_t>(TPosition::CO1);
    GlobalTensor<half> as_rows, as_stripes;
    as_rows.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(rows));
    as_stripes.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(stripes));
    FixpipeParams<float> params(2, 20 * 16 * sizeof(float) / 32, 0, 24);
    params.quantParams = {QuantMode_t::F322F16};
    params.nz2ndParams = {true, 1, 0, 0, 24};
    Fixpipe(as_rows, c, params);
    params.nz2ndParams = {};
    params.dstStride = 12;
    Fixpipe(as_stripes, c, params);
    sums_.FreeTensor(sums);
  }
};
extern "C" __global__ __aicore__ void in_bursts(GM_ADDR a, GM_ADDR b, GM_ADDR rows, GM_ADDR stripes) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  InBursts product(pipe, 20, 24, 16);
  product.LoadLeft(a, false, BY_FRACTALS);
  product.LoadRight(b, false, BY_FRACTALS);
  product.Multiply();
  product.Store(rows, stripes);
}

// c = a b of [16, 16] on the cube core, in device memory; the vector cores of its block add 1 to half of it each.
template <bool aiv_waits, bool aic_waits, pipe_t done = PIPE_FIX>
__aicore__ inline void product_and_sum(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, uint32_t rounds) {
  constexpr uint16_t kDone = 3, kRead = 4;
  if ASCEND_IS_AIC {
    for (uint32_t round = 0; round < rounds; ++round) {
      const int64_t offset = GetBlockIdx() * 256;
      if (aic_waits && round > 0) CrossCoreWaitFlag(kRead);
      TPipe pipe;
      Product<half> product(pipe, 16, 16, 16);
      product.LoadLeft(a + offset * sizeof(half), false, BY_FRACTALS);
      product.LoadRight(b + offset * sizeof(half), false, BY_FRACTALS);
      product.Multiply();
      product.template Store<float>(c + offset * sizeof(float), NoQuant, 0, false, false);
      CrossCoreSetFlag<2, done>(kDone);
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
// The flag says that the products are made, not that they have gone out.
extern "C" __global__ __aicore__ void sets_the_flag_of_another_pipe(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y,
                                                                    uint32_t rounds) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  product_and_sum<true, true, PIPE_M>(a, b, c, y, rounds);
}

// Where a kernel runs: each core writes its answer to its own 8 numbers.
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
    TPipe pipe;
    Product<half> product(pipe, 16, 16, 16);
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
