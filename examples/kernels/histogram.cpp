// SPDX-License-Identifier: Apache-2.0
// How often each number from 0 to bins - 1 is in x: every block counts its part in the unified buffer, and adds its
// counts to those in device memory.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t kTile = 1024;

extern "C" __global__ __aicore__ void histogram(GM_ADDR x, GM_ADDR counts, uint32_t count, uint32_t bins) {
  GlobalTensor<int32_t> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts), bins);

  TPipe pipe;
  TBuf<> values, sums;
  pipe.InitBuffer(values, kTile * sizeof(int32_t));
  pipe.InitBuffer(sums, bins * sizeof(int32_t));
  LocalTensor<int32_t> value = values.Get<int32_t>(), sum = sums.Get<int32_t>(bins);

  Duplicate(sum, 0, bins);
  SetFlag<HardEvent::V_S>(EVENT_ID0);
  WaitFlag<HardEvent::V_S>(EVENT_ID0);
  for (uint32_t start = GetBlockIdx() * kTile; start < count; start += GetBlockNum() * kTile) {
    const uint32_t elements = count - start < kTile ? count - start : kTile;
    DataCopyPad(value, from[start], DataCopyExtParams{1, static_cast<uint32_t>(elements * sizeof(int32_t)), 0, 0, 0},
                DataCopyPadExtParams<int32_t>{});
    SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
    for (uint32_t i = 0; i < elements; ++i) {
      const uint32_t bin = value.GetValue(i);
      sum.SetValue(bin, sum.GetValue(bin) + 1);
    }
    SetFlag<HardEvent::S_MTE2>(EVENT_ID0);  // the next tile overwrites this one
    WaitFlag<HardEvent::S_MTE2>(EVENT_ID0);
  }
  SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
  SetAtomicAdd<int32_t>();
  DataCopyPad(to, sum, DataCopyExtParams{1, static_cast<uint32_t>(bins * sizeof(int32_t)), 0, 0, 0});
  SetAtomicNone();
}
