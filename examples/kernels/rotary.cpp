// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, the halves of a head turned by the angle of its position:
// y = x * cos + (-second half, first half) * sin. A block takes every n-th token.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void rotary(GM_ADDR x, GM_ADDR cos, GM_ADDR sin, GM_ADDR y, uint32_t tokens,
                                             uint32_t heads, uint32_t dim) {
  const uint32_t row = heads * dim, half_dim = dim / 2;
  GlobalTensor<float> x_gm, cos_gm, sin_gm, y_gm;
  x_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), uint64_t{tokens} * row);
  cos_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(cos), uint64_t{tokens} * dim);
  sin_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(sin), uint64_t{tokens} * dim);
  y_gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), uint64_t{tokens} * row);

  TPipe pipe;
  TQue<QuePosition::VECIN, 1> heads_in, angles_in;
  TQue<QuePosition::VECOUT, 1> out;
  TBuf<> turned_buffer;
  pipe.InitBuffer(heads_in, 2, row * sizeof(float));
  pipe.InitBuffer(angles_in, 2, 2 * dim * sizeof(float));
  pipe.InitBuffer(out, 2, row * sizeof(float));
  pipe.InitBuffer(turned_buffer, dim * sizeof(float));
  LocalTensor<float> turned = turned_buffer.Get<float>(dim);

  for (uint32_t token = GetBlockIdx(); token < tokens; token += GetBlockNum()) {
    LocalTensor<float> head = heads_in.AllocTensor<float>(), angle = angles_in.AllocTensor<float>();
    DataCopy(head, x_gm[token * row], row);
    DataCopy(angle, cos_gm[token * dim], dim);
    DataCopy(angle[dim], sin_gm[token * dim], dim);
    heads_in.EnQue(head);
    angles_in.EnQue(angle);

    head = heads_in.DeQue<float>();
    angle = angles_in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    for (uint32_t start = 0; start < row; start += dim) {
      Muls(turned, head[start + half_dim], -1.0f, half_dim);
      Muls(turned[half_dim], head[start], 1.0f, half_dim);
      Mul(turned, turned, angle[dim], dim);
      Mul(result[start], head[start], angle, dim);
      Add(result[start], result[start], turned, dim);
    }
    out.EnQue(result);
    heads_in.FreeTensor(head);
    angles_in.FreeTensor(angle);

    result = out.DeQue<float>();
    DataCopy(y_gm[token * row], result, row);
    out.FreeTensor(result);
  }
}
