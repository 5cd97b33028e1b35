// SPDX-License-Identifier: Apache-2.0
// Functions that move elements.
#include "request.h"

extern "C" __global__ __aicore__ void permute(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  const auto repeats = static_cast<uint8_t>(run.r.repeats);
  const auto block_stride = static_cast<uint8_t>(run.r.block_stride[0]);
  const auto repeat_stride = static_cast<uint8_t>(run.r.repeat_stride[0]);
  RUN_IF(
      Copy, { Copy(t, t, 1, 1, CopyRepeatParams{}); }, run.with_mask([&](auto mask) {
        const auto narrow = [](uint32_t stride) { return static_cast<uint16_t>(stride); };
        Copy(run.dst<T>(), run.src0<T>(), mask, repeats,
             CopyRepeatParams{narrow(run.r.block_stride[0]), narrow(run.r.block_stride[1]),
                              narrow(run.r.repeat_stride[0]), narrow(run.r.repeat_stride[1])});
      });)
  RUN_IF(
      Brcb, { Brcb(t, t, 1, BrcbRepeatParams{}); },
      Brcb(run.dst<T>(), run.src0<T>(), repeats, BrcbRepeatParams{block_stride, repeat_stride});)
  RUN_IF(
      Gather, { Gather(t, t, t.template ReinterpretCast<uint32_t>(), 0u, 1u); },
      const auto offsets = run.src1<uint32_t>();
      if (run.r.form == kCount) { Gather(run.dst<T>(), run.src0<T>(), offsets, run.r.option, run.r.count); } else {
        run.with_mask([&](auto mask) {
          Gather(run.dst<T>(), run.src0<T>(), offsets, run.r.option, mask, repeats, repeat_stride);
        });
      })
  RUN_IF(
      Gatherb, { Gatherb(t, t, t.template ReinterpretCast<uint32_t>(), 1, GatherRepeatParams{}); },
      Gatherb(run.dst<T>(), run.src0<T>(), run.src1<uint32_t>(), repeats,
              GatherRepeatParams{block_stride, repeat_stride});)
  // The number of elements that were gathered goes into the last eight bytes of dst.
  RUN_IF(
      GatherMask, { Copy(t, t, 1, 1, CopyRepeatParams{}); },
      const GatherMaskParams params{static_cast<uint8_t>(run.r.block_stride[1]), static_cast<uint16_t>(run.r.repeats),
                                    static_cast<uint16_t>(run.r.repeat_stride[1]),
                                    static_cast<uint8_t>(run.r.repeat_stride[2])};
      uint64_t gathered = 0; if (run.r.option != 0) {
        const auto pattern = static_cast<uint8_t>(run.r.option);
        GatherMask(run.dst<T>(), run.src0<T>(), pattern, run.r.flag, run.r.count, params, gathered);
      } else {
        using Pattern = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
        GatherMask(run.dst<T>(), run.src0<T>(), run.src1<Pattern>(), run.r.flag, run.r.count, params, gathered);
      } PipeBarrier<PIPE_ALL>();
      run.dst<uint32_t>().SetValue(run.r.bytes[0] / 4 - 1, static_cast<uint32_t>(gathered));)
  RUN_IF(Transpose, { Transpose(t, t); }, Transpose(run.dst<T>(), run.src0<T>());)
  RUN_IF(
      Sort32, { Sort32(t, t, t.template ReinterpretCast<uint32_t>(), 1); },
      Sort32(run.dst<T>(), run.src0<T>(), run.src1<uint32_t>(), static_cast<int32_t>(run.r.repeats));)
  ASSERT(!"a function");
}
