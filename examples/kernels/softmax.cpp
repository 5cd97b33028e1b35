// SPDX-License-Identifier: Apache-2.0
// y = softmax(x) of every row: exp(x - max) divided by its sum. A block takes every n-th row.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kBlock = 32 / sizeof(float);  // elements that DataCopy moves at least

extern "C" __global__ __aicore__ void softmax(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns) {
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), uint64_t{rows} * columns);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), uint64_t{rows} * columns);

  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  TBuf<> work, scalar;
  const uint32_t bytes = columns * sizeof(float);
  pipe.InitBuffer(in, 2, bytes);
  pipe.InitBuffer(out, 2, bytes);
  pipe.InitBuffer(work, bytes);
  pipe.InitBuffer(scalar, kBlock * sizeof(float));
  LocalTensor<float> reduced = scalar.Get<float>();

  // What the vector unit has reduced to one number, as a number of the scalar unit; each waits for the other.
  const auto number = [&] {
    const auto to_scalar = pipe.FetchEventID(HardEvent::V_S), to_vector = pipe.FetchEventID(HardEvent::S_V);
    SetFlag<HardEvent::V_S>(to_scalar);
    WaitFlag<HardEvent::V_S>(to_scalar);
    const float value = reduced.GetValue(0);
    SetFlag<HardEvent::S_V>(to_vector);
    WaitFlag<HardEvent::S_V>(to_vector);
    return value;
  };

  for (uint32_t row = GetBlockIdx(); row < rows; row += GetBlockNum()) {
    LocalTensor<float> source = in.AllocTensor<float>();
    DataCopyPad(source, from[row * columns], DataCopyExtParams{1, bytes, 0, 0, 0}, DataCopyPadExtParams<float>{});
    in.EnQue(source);

    source = in.DeQue<float>();
    LocalTensor<float> result = out.AllocTensor<float>();
    ReduceMax(reduced, source, work.Get<float>(), columns);
    Adds(result, source, -number(), columns);
    Exp(result, result, columns);
    ReduceSum(reduced, result, work.Get<float>(), columns);
    Muls(result, result, 1 / number(), columns);
    out.EnQue(result);
    in.FreeTensor(source);

    result = out.DeQue<float>();
    DataCopyPad(to[row * columns], result, DataCopyExtParams{1, bytes, 0, 0, 0});
    out.FreeTensor(result);
  }
}
