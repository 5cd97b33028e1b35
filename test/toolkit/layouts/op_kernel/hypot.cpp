// SPDX-License-Identifier: Apache-2.0
// sqrt(x^2 + y^2), a tile of part.each elements after the other.
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void hypot(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  const uint32_t each = data.part.each;
  pipe.InitBuffer(in, 1, 2 * each * sizeof(float));
  pipe.InitBuffer(out, 1, each * sizeof(float));
  GlobalTensor<float> a, b, c;
  a.SetGlobalBuffer((__gm__ float*)x);
  b.SetGlobalBuffer((__gm__ float*)y);
  c.SetGlobalBuffer((__gm__ float*)z);
  for (uint32_t at = 0; at < data.size; at += each) {
    LocalTensor<float> both = in.AllocTensor<float>();
    DataCopy(both, a[at], each);
    DataCopy(both[each], b[at], each);
    in.EnQue(both);
    both = in.DeQue<float>();
    LocalTensor<float> root = out.AllocTensor<float>();
    Mul(both, both, both, 2 * each);
    Add(root, both, both[each], each);
    Sqrt(root, root, each);
    out.EnQue(root);
    in.FreeTensor(both);
    root = out.DeQue<float>();
    DataCopy(c[at], root, each);
    out.FreeTensor(root);
  }
}
