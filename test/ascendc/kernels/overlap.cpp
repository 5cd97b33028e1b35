// SPDX-License-Identifier: Apache-2.0
// Instructions whose operands lie in one buffer, at places and strides of the request: in part on each other.
#include "request.h"

struct Places {
  uint32_t at[3];  // of dst and the sources, in elements
};

extern "C" __global__ __aicore__ void overlap(GM_ADDR memory, GM_ADDR places, GM_ADDR request) {
  GET_TILING_DATA_WITH_STRUCT(Places, p, places);
  Run run(memory, memory, memory, request);
  const LocalTensor<float> all = run.dst<float>();
  const LocalTensor<float> dst = all[p.at[0]], a = all[p.at[1]], b = all[p.at[2]];
  const auto repeats = static_cast<uint8_t>(run.r.repeats);
  run.with_mask([&](auto mask) {
    if (run.r.is("Add")) Add(dst, a, b, mask, repeats, run.r.binary());
    if (run.r.is("MulAddDst")) MulAddDst(dst, a, b, mask, repeats, run.r.binary());
    if (run.r.is("Adds")) Adds(dst, a, run.r.scalar, mask, repeats, run.r.unary());
    if (run.r.is("Cast")) {
      Cast(dst, a.ReinterpretCast<half>(), RoundMode::CAST_NONE, mask, repeats, run.r.unary());
    }
  });
}
