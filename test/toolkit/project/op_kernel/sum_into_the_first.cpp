// SPDX-License-Identifier: Apache-2.0
#include "kernel_operator.h"
#include "kernel_operator_list_tensor_intf.h"
#include "sum_into_tiling.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void sum_into(GM_ADDR total, GM_ADDR terms, GM_ADDR result, GM_ADDR workspace,
                                               GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(SumIntoTiling);
  GET_TILING_DATA(data, tiling);
  ASSERT(total == result && "what is written is what was read");
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 2 * data.elements * sizeof(float) + 64);
  LocalTensor<float> sum = buffer.Get<float>(), term = sum[(data.elements + 7) / 8 * 8];
  GlobalTensor<float> to, from;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(GetUserWorkspace(workspace)), data.elements);
  const DataCopyExtParams all{1, static_cast<uint32_t>(data.elements * sizeof(float)), 0, 0, 0};
  ListTensorDesc list(reinterpret_cast<__gm__ void*>(terms));
  for (uint32_t i = 0; i <= data.terms; ++i) {
    auto* address = i == 0 ? reinterpret_cast<__gm__ float*>(total) : list.GetDataPtr<__gm__ float>(i - 1);
    from.SetGlobalBuffer(address, data.elements);
    DataCopyPad(i == 0 ? sum : term, from, all, DataCopyPadExtParams<float>{});
    PipeBarrier<PIPE_ALL>();
    if (i > 0) Add(sum, sum, term, data.elements);
    PipeBarrier<PIPE_ALL>();
  }
  DataCopyPad(to, sum, all);  // by way of the workspace
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(sum, to, all, DataCopyPadExtParams<float>{});
  PipeBarrier<PIPE_ALL>();
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(result), data.elements);
  DataCopyPad(to, sum, all);
}
