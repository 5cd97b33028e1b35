// SPDX-License-Identifier: Apache-2.0
// Kernels that copy by whole blocks of 32 bytes what does not fill them.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kBlock = 8;  // floats

uint32_t rounded(uint32_t count) { return (count + kBlock - 1) / kBlock * kBlock; }

struct Task {
  Task(GM_ADDR x, GM_ADDR y, uint64_t count, uint32_t tile) {
    from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), count);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), count);
    pipe.InitBuffer(in, 1, tile * sizeof(float));
    pipe.InitBuffer(out, 1, tile * sizeof(float));
  }

  // Copies `copied` elements from `first` on in and out, and computes y = x + 1 for the first `computed` of them.
  void add(uint32_t first, uint32_t computed, uint32_t copied) {
    LocalTensor<float> tensor = in.AllocTensor<float>();
    DataCopy(tensor, from[first], copied);
    in.EnQue(tensor);
    tensor = in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    Adds(result, tensor, 1.0f, static_cast<int32_t>(computed));
    out.EnQue(result);
    in.FreeTensor(tensor);
    result = out.DeQue<float>();
    DataCopy(to[first], result, copied);
    out.FreeTensor(result);
  }

  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  GlobalTensor<float> from, to;
};

}  // namespace

extern "C" __global__ __aicore__ void rounds_up(GM_ADDR x, GM_ADDR y, uint32_t count) {
  Task(x, y, count, rounded(count)).add(0, count, rounded(count));
}

extern "C" __global__ __aicore__ void rounds_rows_up(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) {
  Task task(x, y, uint64_t{rows} * columns, rounded(columns));
  for (uint32_t row = 0; row < rows; ++row) {
    task.add(row * columns, columns, rounded(columns));
    PipeBarrier<PIPE_MTE3>();
  }
}

// The parts of blocks, each rounded up over the next one's.
extern "C" __global__ __aicore__ void rounds_parts_up(GM_ADDR x, GM_ADDR y, uint32_t count) {
  const auto first = static_cast<uint32_t>(GetBlockIdx()) * count;
  Task(x, y, uint64_t{first} + count, rounded(count)).add(first, count, rounded(count));
}

extern "C" __global__ __aicore__ void copies_two_blocks_more(GM_ADDR x, GM_ADDR y, uint32_t count) {
  Task(x, y, count, rounded(count) + 16).add(0, count, rounded(count) + 16);
}

extern "C" __global__ __aicore__ void computes_half(GM_ADDR x, GM_ADDR y, uint32_t count) {
  Task(x, y, count, rounded(count)).add(0, count / 2, rounded(count));
}

extern "C" __global__ __aicore__ void pads_too_many(GM_ADDR x, GM_ADDR y, uint32_t count) {
  Task task(x, y, count, rounded(count));
  LocalTensor<float> tensor = task.in.AllocTensor<float>();
  DataCopyPad(tensor, task.from, DataCopyExtParams{1, static_cast<uint32_t>(rounded(count) * sizeof(float)), 0, 0, 0},
              DataCopyPadExtParams<float>{});
  task.in.FreeTensor(tensor);
}
