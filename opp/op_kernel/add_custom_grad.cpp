// SPDX-License-Identifier: Apache-2.0
// AddCustomGrad: two copies of a tensor of any dtype.
#include "add_custom_tiling.h"
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void add_custom_grad(GM_ADDR self, GM_ADDR grad_self, GM_ADDR grad_other,
                                                      GM_ADDR /*workspace*/, GM_ADDR tiling_address) {
  REGISTER_TILING_DEFAULT(opp::AddCustomGradTiling);
  GET_TILING_DATA(tiling, tiling_address);
  GlobalTensor<uint8_t> from, to_self, to_other;
  from.SetGlobalBuffer(self);
  to_self.SetGlobalBuffer(grad_self);
  to_other.SetGlobalBuffer(grad_other);
  TPipe pipe;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 2, opp::AddCustomGradTiling::kTileBytes);

  const uint64_t first = tiling.per_block * GetBlockIdx();
  for (uint64_t at = first; at < tiling.bytes && at < first + tiling.per_block;
       at += opp::AddCustomGradTiling::kTileBytes) {
    const uint64_t rest = tiling.bytes - at;
    const uint32_t count = rest < opp::AddCustomGradTiling::kTileBytes ? static_cast<uint32_t>(rest)
                                                                       : opp::AddCustomGradTiling::kTileBytes;
    const DataCopyExtParams bytes{1, count, 0, 0, 0};
    LocalTensor<uint8_t> tile = queue.AllocTensor<uint8_t>();
    DataCopyPad(tile, from[at], bytes, DataCopyPadExtParams<uint8_t>{false, 0, 0, 0});
    queue.EnQue(tile);
    tile = queue.DeQue<uint8_t>();
    DataCopyPad(to_self[at], tile, bytes);
    DataCopyPad(to_other[at], tile, bytes);
    queue.FreeTensor(tile);
  }
}
