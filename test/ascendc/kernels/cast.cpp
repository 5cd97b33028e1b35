// SPDX-License-Identifier: Apache-2.0
// Cast, for every pair of dtypes.
#include "request.h"

extern "C" __global__ __aicore__ void cast(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  const auto mode = static_cast<RoundMode>(run.r.option);
  with_dtype(run.r.dtype, [&]<class From>() {
    with_dtype(run.r.to, [&]<class To>() {
      if constexpr (requires(const LocalTensor<To>& d, const LocalTensor<From>& s) { Cast(d, s, mode, 1u); }) {
        if (run.r.form == kCount) {
          Cast(run.dst<To>(), run.src0<From>(), mode, run.r.count);
        } else {
          run.with_mask([&](auto mask) {
            Cast(run.dst<To>(), run.src0<From>(), mode, mask, static_cast<uint8_t>(run.r.repeats), run.r.unary());
          });
        }
      } else {
        ASSERT(!"the function has the dtype");
      }
    });
  });
}
