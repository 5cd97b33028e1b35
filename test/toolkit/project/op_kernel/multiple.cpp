// SPDX-License-Identifier: Apache-2.0
#include "kernel_operator.h"
#include "multiple_key.h"

using namespace AscendC;

template <class T, int FACTOR, bool NEGATIVE = false>
__global__ __aicore__ void multiple_of(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(multiple::Tiling);
  REGISTER_TILING_FOR_TILINGKEY("NEGATIVE && FACTOR < 2", multiple::NegativeTiling);
  uint32_t elements = 0;
  if constexpr (NEGATIVE && FACTOR < 2) {
    GET_TILING_DATA_WITH_STRUCT(multiple::NegativeTiling, data, tiling);
    elements = data.elements;
    if (GetSubBlockIdx() != 1) return;  // the second vector core, which kernels of vector cores alone do not have
  } else {
    GET_TILING_DATA(data, tiling);
    elements = data.elements;
  }
  GlobalTensor<T> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x), elements);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y), elements);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, elements * sizeof(T) + 32);
  LocalTensor<T> values = buffer.Get<T>();
  const DataCopyExtParams all{1, static_cast<uint32_t>(elements * sizeof(T)), 0, 0, 0};
  DataCopyPad(values, from, all, DataCopyPadExtParams<T>{});
  PipeBarrier<PIPE_ALL>();
  Muls(values, values, static_cast<T>(NEGATIVE ? -FACTOR : FACTOR), elements);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, values, AlignUp(elements, 32u / sizeof(T)));  // memory of a device has room for whole blocks
}
