// SPDX-License-Identifier: Apache-2.0
// Kernels whose instructions are few enough for their timelines to be made by hand.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kCount = 128;  // of float: two repeats, 512 bytes

struct Buffers {
  __aicore__ Buffers(GM_ADDR x, GM_ADDR y, uint32_t depth) {
    x_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x));
    y_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y));
    pipe.InitBuffer(in, depth, kCount * sizeof(float));
    pipe.InitBuffer(out, depth, kCount * sizeof(float));
  }
  __aicore__ void Tile(uint32_t i) {
    LocalTensor<float> source = in.AllocTensor<float>();
    DataCopy(source, x_gm[i * kCount], kCount);
    in.EnQue(source);
    source = in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    Adds(result, source, 1.0f, kCount);
    out.EnQue(result);
    in.FreeTensor(source);
    result = out.DeQue<float>();
    DataCopy(y_gm[i * kCount], result, kCount);
    out.FreeTensor(result);
  }
  TPipe pipe;
  TQue<QuePosition::VECIN, 2> in;
  TQue<QuePosition::VECOUT, 2> out;
  GlobalTensor<float> x_gm, y_gm;
};

// Copy, addition and copy of each tile; block i has i + 1 of them.
extern "C" __global__ __aicore__ void tiles(GM_ADDR x, GM_ADDR y, uint32_t depth) {
  Buffers buffers(x, y, depth);
  const uint32_t block = static_cast<uint32_t>(GetBlockIdx()), first = block * (block + 1) / 2;
  for (uint32_t i = 0; i <= block; ++i) buffers.Tile(first + i);
}

// Three instructions in one line, a reduction that reports its memory in parts, and a copy within the buffer.
extern "C" __global__ __aicore__ void vectors(GM_ADDR y) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 4 * kCount * sizeof(float));
  LocalTensor<float> all = buffer.Get<float>();
  for (uint32_t i = 0; i < 3; ++i) Duplicate(all[i * kCount], 1.0f, kCount);
  PipeBarrier<PIPE_V>();
  ReduceSum(all[3 * kCount], all, all[2 * kCount], kCount);
  PipeBarrier<PIPE_V>();
  DataCopy(all[kCount], all, kCount);
  event_t done = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::V_S));
  SetFlag<HardEvent::V_S>(done);
  WaitFlag<HardEvent::V_S>(done);
  const float sum = all.GetValue(3 * kCount);
  GlobalTensor<float> y_gm;
  y_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y));
  y_gm.SetValue(0, sum);
  DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y_gm);
}

// c = a b of 32 x 32 halves: a step on every pipe of a cube core.
extern "C" __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  constexpr uint16_t kSize = 32;
  constexpr uint32_t kElements = kSize * kSize;
  GlobalTensor<half> a_gm, b_gm, c_gm;
  a_gm.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(a), kElements);
  b_gm.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(b), kElements);
  c_gm.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(c), kElements);
  TPipe pipe;
  TQue<TPosition::A1, 1> a1;
  TQue<TPosition::B1, 1> b1;
  TQue<TPosition::A2, 1> a2;
  TQue<TPosition::B2, 1> b2;
  TQue<TPosition::CO1, 1> sums;
  pipe.InitBuffer(a1, 1, kElements * sizeof(half));
  pipe.InitBuffer(b1, 1, kElements * sizeof(half));
  pipe.InitBuffer(a2, 1, kElements * sizeof(half));
  pipe.InitBuffer(b2, 1, kElements * sizeof(half));
  pipe.InitBuffer(sums, 1, kElements * sizeof(float));
  LocalTensor<half> left = a1.AllocTensor<half>(), right = b1.AllocTensor<half>();
  DataCopy(left, a_gm, Nd2NzParams(1, kSize, kSize, 0, kSize, kSize, 1, 0));
  DataCopy(right, b_gm, Nd2NzParams(1, kSize, kSize, 0, kSize, kSize, 1, 0));
  a1.EnQue(left);
  b1.EnQue(right);
  left = a1.DeQue<half>();
  right = b1.DeQue<half>();
  LocalTensor<half> left_factor = a2.AllocTensor<half>(), right_factor = b2.AllocTensor<half>();
  LoadData(left_factor, left, LoadData2DParams(0, 4, 1, 0, 0, false, 0));
  LoadData(right_factor, right, LoadData2DParams(0, 4, 1, 0, 0, true, 0));
  a2.EnQue(left_factor);
  b2.EnQue(right_factor);
  a1.FreeTensor(left);
  b1.FreeTensor(right);
  left_factor = a2.DeQue<half>();
  right_factor = b2.DeQue<half>();
  LocalTensor<float> sum = sums.AllocTensor<float>();
  MmadParams params;
  params.m = params.n = params.k = kSize;
  Mmad(sum, left_factor, right_factor, params);
  sums.EnQue(sum);
  a2.FreeTensor(left_factor);
  b2.FreeTensor(right_factor);
  sum = sums.DeQue<float>();
  FixpipeParamsV220 out(kSize, kSize, kSize, kSize, false);
  out.quantPre = QuantMode_t::F322F16;
  Fixpipe(c_gm, sum, out);
  sums.FreeTensor(sum);
}

// The cube core reads 512 bytes; the vector core reads others when it has heard of that.
extern "C" __global__ __aicore__ void message(GM_ADDR x) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  GlobalTensor<float> x_gm;
  x_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 2 * kCount);
  TPipe pipe;
  if ASCEND_IS_AIC {
    TBuf<TPosition::A1> buffer;
    pipe.InitBuffer(buffer, kCount * sizeof(float));
    DataCopy(buffer.Get<float>(), x_gm, kCount);
    CrossCoreSetFlag<2, PIPE_MTE2>(3);
  }
  if ASCEND_IS_AIV {
    TBuf<> buffer;
    pipe.InitBuffer(buffer, kCount * sizeof(float));
    CrossCoreWaitFlag(3);
    DataCopy(buffer.Get<float>(), x_gm[kCount], kCount);
  }
}

// Each block reads its 64 KB, `times` times.
extern "C" __global__ __aicore__ void reads(GM_ADDR x, uint32_t times) {
  constexpr uint32_t kBytes = 64 * 1024;
  GlobalTensor<uint8_t> x_gm;
  x_gm.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(x));
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, kBytes);
  for (uint32_t i = 0; i < times; ++i) {
    DataCopy(buffer.Get<uint8_t>(), x_gm[GetBlockIdx() * kBytes], kBytes);
    PipeBarrier<PIPE_MTE2>();
  }
}

// Instructions that report to the checks piece by piece, each twice from one line.
extern "C" __global__ __aicore__ void pieces() {
  TPipe pipe;
  TBuf<> memory;
  pipe.InitBuffer(memory, 16 * 1024);
  LocalTensor<float> all = memory.Get<float>();
  LocalTensor<float> a = all, b = all[kCount], c = all[2 * kCount], runs = all[4 * kCount], merged = all[8 * kCount];
  LocalTensor<uint32_t> numbers = all[12 * kCount].ReinterpretCast<uint32_t>();
  LocalTensor<uint8_t> bits = all[13 * kCount].ReinterpretCast<uint8_t>();
  Duplicate(all, 1.0f, 14 * kCount);
  for (uint32_t i = 0; i < 2; ++i) {
    Select(c, bits, a, b, SELMODE::VSEL_TENSOR_TENSOR_MODE, kCount);
    uint64_t gathered = 0;
    GatherMask(c, a, 1, false, 0, GatherMaskParams{1, 2, 8, 0}, gathered);
    Brcb(c, a, 1, BrcbRepeatParams{1, 8});
    Sort32(runs, a, numbers, 4);
    const uint16_t lengths[4] = {32, 32, 32, 32};
    MrgSort(merged, MrgSortSrcList<float>(runs, runs[64], runs[128], runs[192]), MrgSort4Info(lengths, false, 15, 1));
    PipeBarrier<PIPE_ALL>();
  }
}
