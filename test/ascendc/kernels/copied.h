// SPDX-License-Identifier: Apache-2.0
// The memory of kernels that compute from x to y.
#pragma once

#include "kernel_operator.h"

// `count` elements of x copied in, `out_count` of y as well, and the latter copied out to y at the end.
template <class T>
struct Copied {
  Copied(GM_ADDR x_address, GM_ADDR y_address, uint32_t count, uint32_t out_count) {
    x.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x_address), count);
    y.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y_address), out_count);
    pipe.InitBuffer(in_buffer, count * sizeof(T));
    pipe.InitBuffer(out_buffer, out_count * sizeof(T));
    in = in_buffer.template Get<T>(count);
    out = out_buffer.template Get<T>(out_count);
    AscendC::DataCopy(in, x, count);
    AscendC::DataCopy(out, y, out_count);
    AscendC::PipeBarrier<PIPE_ALL>();
  }

  void store() {
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::DataCopy(y, out, out.GetSize());
  }

  AscendC::TPipe pipe;
  AscendC::GlobalTensor<T> x, y;
  AscendC::TBuf<> in_buffer, out_buffer;
  AscendC::LocalTensor<T> in, out;
};
