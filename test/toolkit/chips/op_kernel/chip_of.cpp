// SPDX-License-Identifier: Apache-2.0
// Takes the whole unified buffer, and copies out what it knows of the chip from its last block.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void chip_of(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  GlobalTensor<float> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 8);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, data.bytes);
  LocalTensor<float> said = buffer.Get<float>()[data.bytes / sizeof(float) - 8];
  Duplicate(said, 0.0f, 8);
  said.SetValue(0, static_cast<float>(data.cores));
  said.SetValue(1, static_cast<float>(data.bytes));
  said.SetValue(2, static_cast<float>(__NPU_ARCH__));
  const float known = said.GetValue(2);
  said.SetValue(3, known + 1);
  PipeBarrier<PIPE_ALL>();
  if (data.pads != 0) {
    DataCopyPad(to, said, DataCopyExtParams{1, 32, 0, 0, 0});
  } else {
    DataCopy(to, said, 8);
  }
}
