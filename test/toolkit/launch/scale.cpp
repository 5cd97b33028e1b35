// SPDX-License-Identifier: Apache-2.0
// y = factor * x + OFFSET, with the arguments as a struct by value and as numbers.
#include "scale.h"
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kTile = 64;

__aicore__ inline void run(GM_ADDR x, GM_ADDR y, uint32_t count, float factor) {
  const uint32_t own = count / GetBlockNum();
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x) + own * GetBlockIdx(), own);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + own * GetBlockIdx(), own);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  pipe.InitBuffer(in, 1, kTile * sizeof(float));
  pipe.InitBuffer(out, 1, kTile * sizeof(float));
  for (uint32_t start = 0; start < own; start += kTile) {
    LocalTensor<float> tile = in.AllocTensor<float>();
    DataCopy(tile, from[start], kTile);
    in.EnQue(tile);
    tile = in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    Muls(result, tile, factor, kTile);
    PipeBarrier<PIPE_V>();
    Adds(result, result, static_cast<float>(OFFSET), kTile);
    in.FreeTensor(tile);
    out.EnQue(result);
    result = out.DeQue<float>();
    DataCopy(to[start], result, kTile);
    out.FreeTensor(result);
  }
}

extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, ScaleTiling tiling) {
  run(x, y, tiling.count, tiling.factor);
}

extern "C" __global__ __aicore__ void scale_by(GM_ADDR x, GM_ADDR y, uint32_t count, float factor) {
  run(x, y, count, factor);
}

// Its entry is 3.
extern "C" __global__ __aicore__ void scale_by_3(GM_ADDR x, GM_ADDR y, uint32_t count) { run(x, y, count, 3); }

// Ends when the flag is set, and not before.
extern "C" __global__ __aicore__ void until_set(GM_ADDR flag) {
  while (*reinterpret_cast<volatile __gm__ uint32_t*>(flag) == 0) {
  }
}

#ifndef ASCENDC_CPU_DEBUG
void scale_do(uint32_t blocks, void* stream, uint8_t* x, uint8_t* y, const ScaleTiling& tiling) {
  scale<<<blocks, nullptr, stream>>>(x, y, tiling);
}
#endif
