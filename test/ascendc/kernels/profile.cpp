// SPDX-License-Identifier: Apache-2.0
// Kernels whose instructions are few enough to be counted by hand.
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

// Three instructions of one line, a reduction that is told of its memory in parts, and a copy within the buffer.
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
