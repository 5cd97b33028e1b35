// SPDX-License-Identifier: Apache-2.0
// Reductions.
#include "request.h"

#define WHOLE(Name, ...)                                                                                     \
  RUN_IF(                                                                                                    \
      Name, { Name(t, t, 1, 1, 1, 1, 8); }, run.with_mask([&](auto mask) {                                   \
        Name(run.dst<T>(), run.src0<T>(), mask, static_cast<uint8_t>(run.r.repeats), run.r.repeat_stride[0], \
             run.r.block_stride[1], run.r.repeat_stride[1] __VA_OPT__(, ) __VA_ARGS__);                      \
      });)
#define GROUPS(Name)                                                                                         \
  RUN_IF(                                                                                                    \
      Name, { Name(t, t, 1, 1, 1, 1, 8); }, run.with_mask([&](auto mask) {                                   \
        Name(run.dst<T>(), run.src0<T>(), static_cast<uint8_t>(run.r.repeats), mask, run.r.repeat_stride[0], \
             run.r.block_stride[1], run.r.repeat_stride[1]);                                                 \
      });)
#define TENSOR(Name, ...)                                                                                  \
  RUN_IF(                                                                                                  \
      Name, { Name(t, t, t, n); },                                                                         \
      if (run.r.form == kCount) {                                                                          \
        Name(run.dst<T>(), run.src0<T>(), run.temporary<T>(),                                              \
             static_cast<int32_t>(run.r.count) __VA_OPT__(, ) __VA_ARGS__);                                \
      } else {                                                                                             \
        run.with_mask([&](auto mask) {                                                                     \
          Name(run.dst<T>(), run.src0<T>(), run.temporary<T>(), mask, static_cast<int32_t>(run.r.repeats), \
               static_cast<int32_t>(run.r.repeat_stride[1]) __VA_OPT__(, ) __VA_ARGS__);                   \
        });                                                                                                \
      })

extern "C" __global__ __aicore__ void reduce(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  WHOLE(WholeReduceMax, static_cast<ReduceOrder>(run.r.option))
  WHOLE(WholeReduceMin, static_cast<ReduceOrder>(run.r.option))
  WHOLE(WholeReduceSum)
  RUN_IF(
      RepeatReduceSum, { RepeatReduceSum(t, t, 1, 1, 1, 1, 1, 8); }, run.with_mask([&](auto mask) {
        RepeatReduceSum(run.dst<T>(), run.src0<T>(), static_cast<uint8_t>(run.r.repeats), mask, 1,
                        run.r.block_stride[1], run.r.repeat_stride[0], run.r.repeat_stride[1]);
      });)
  GROUPS(BlockReduceSum)
  GROUPS(BlockReduceMax)
  GROUPS(BlockReduceMin)
  GROUPS(PairReduceSum)
  TENSOR(ReduceMax, run.r.flag)
  TENSOR(ReduceMin, run.r.flag)
  TENSOR(ReduceSum)
  ASSERT(!"a function");
}
