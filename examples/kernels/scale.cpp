// SPDX-License-Identifier: Apache-2.0
// y = factor * x, of any number of floats: the kernel of docs/ascendc_kernels.md.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kTile = 2048;  // elements in the unified buffer at a time
constexpr uint32_t kBuffers = 2;  // one is copied while the other is computed with

extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, uint32_t count, float factor) {
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), count);

  TPipe pipe;
  TQue<QuePosition::VECIN, kBuffers> in;
  TQue<QuePosition::VECOUT, kBuffers> out;
  pipe.InitBuffer(in, kBuffers, kTile * sizeof(float));
  pipe.InitBuffer(out, kBuffers, kTile * sizeof(float));

  for (uint32_t start = GetBlockIdx() * kTile; start < count; start += GetBlockNum() * kTile) {
    const uint32_t elements = count - start < kTile ? count - start : kTile;
    const uint32_t bytes = elements * sizeof(float);

    LocalTensor<float> source = in.AllocTensor<float>();
    DataCopyPad(source, from[start], DataCopyExtParams{1, bytes, 0, 0, 0}, DataCopyPadExtParams<float>{});
    in.EnQue(source);

    source = in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    Muls(result, source, factor, static_cast<int32_t>(elements));
    out.EnQue(result);
    in.FreeTensor(source);

    result = out.DeQue<float>();
    DataCopyPad(to[start], result, DataCopyExtParams{1, bytes, 0, 0, 0});
    out.FreeTensor(result);
  }
}
