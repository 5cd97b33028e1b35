// SPDX-License-Identifier: Apache-2.0
#include "kernel_operator.h"
#include "repeat_rows_tiling.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void repeat_rows(GM_ADDR x, GM_ADDR counts, GM_ADDR out, GM_ADDR first,
                                                  GM_ADDR workspace, GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(RepeatRowsTiling);
  GET_TILING_DATA(data, tiling);
  TPipe pipe;
  TBuf<> row_buffer, first_buffer;
  pipe.InitBuffer(row_buffer, (data.columns * sizeof(float) + 31) / 32 * 32);
  pipe.InitBuffer(first_buffer, (kMostRows + 1) * sizeof(int32_t));
  LocalTensor<float> row = row_buffer.Get<float>();
  LocalTensor<int32_t> begins = first_buffer.Get<int32_t>();
  GlobalTensor<float> from, to;
  GlobalTensor<int64_t> times;
  GlobalTensor<int32_t> begins_out;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), data.rows * data.columns);
  times.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(counts), data.rows);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(out), data.out_rows * data.columns);
  begins_out.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(first), data.rows);
  const DataCopyExtParams one_row{1, static_cast<uint32_t>(data.columns * sizeof(float)), 0, 0, 0};
  uint32_t done = 0;
  for (uint32_t i = 0; i < data.rows; ++i) {
    DataCopyPad(row, from[i * data.columns], one_row, DataCopyPadExtParams<float>{});
    PipeBarrier<PIPE_ALL>();
    for (int64_t k = 0; k < times.GetValue(i); ++k) DataCopyPad(to[done++ * data.columns], row, one_row);
    PipeBarrier<PIPE_ALL>();
    begins.SetValue(i, data.first[i]);
  }
  Duplicate(row, 0.0f, data.columns);
  PipeBarrier<PIPE_ALL>();
  while (done < data.out_rows) DataCopyPad(to[done++ * data.columns], row, one_row);
  DataCopyPad(begins_out, begins, DataCopyExtParams{1, static_cast<uint32_t>(data.rows * sizeof(int32_t)), 0, 0, 0});
}
