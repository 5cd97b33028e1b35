// SPDX-License-Identifier: Apache-2.0
#include "add_total_tiling.h"
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void add_total(GM_ADDR x, GM_ADDR numbers, GM_ADDR y, GM_ADDR workspace,
                                                GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(AddTotalTiling);
  GET_TILING_DATA(data, tiling);
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), data.elements);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), data.elements);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, data.elements * sizeof(float));
  const LocalTensor<float> values = buffer.Get<float>();
  const DataCopyExtParams all{1, static_cast<uint32_t>(data.elements * sizeof(float)), 0, 0, 0};
  DataCopyPad(values, from, all, DataCopyPadExtParams<float>{});
  PipeBarrier<PIPE_ALL>();
  Adds(values, values, data.total, data.elements);
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(to, values, all);
}
