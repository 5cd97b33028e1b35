// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, of a tensor and a scalar, and of a scalar alone.
#include "request.h"

#define UNARY(Name)                                                                                              \
  RUN_IF(                                                                                                        \
      Name, { Name(t, t, n); },                                                                                  \
      if (run.r.form == kCount) { Name(run.dst<T>(), run.src0<T>(), static_cast<int32_t>(run.r.count)); } else { \
        run.with_mask([&](auto mask) {                                                                           \
          Name(run.dst<T>(), run.src0<T>(), mask, static_cast<uint8_t>(run.r.repeats), run.r.unary());           \
        });                                                                                                      \
      })

extern "C" __global__ __aicore__ void unary(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  UNARY(Abs)
  UNARY(Exp)
  UNARY(Ln)
  UNARY(Sqrt)
  UNARY(Rsqrt)
  UNARY(Reciprocal)
  UNARY(Relu)
  UNARY(Not)
  ASSERT(!"a function");
}

#define SCALAR(Name)                                                                                           \
  RUN_IF(                                                                                                      \
      Name, { Name(t, t, s, n); }, const T scalar = static_cast<T>(run.r.scalar); if (run.r.form == kCount) {  \
        Name(run.dst<T>(), run.src0<T>(), scalar, static_cast<int32_t>(run.r.count));                          \
      } else {                                                                                                 \
        run.with_mask([&](auto mask) {                                                                         \
          Name(run.dst<T>(), run.src0<T>(), scalar, mask, static_cast<uint8_t>(run.r.repeats), run.r.unary()); \
        });                                                                                                    \
      })

extern "C" __global__ __aicore__ void scalar(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  SCALAR(Adds)
  SCALAR(Muls)
  SCALAR(Maxs)
  SCALAR(Mins)
  SCALAR(ShiftLeft)
  SCALAR(ShiftRight)
  SCALAR(LeakyRelu)
  SCALAR(Axpy)
  ASSERT(!"a function");
}

#define FILL(Name)                                                                                          \
  RUN_IF(                                                                                                   \
      Name, { Name(t, s, n); }, const T scalar = static_cast<T>(run.r.scalar);                              \
      if (run.r.form == kCount) { Name(run.dst<T>(), scalar, run.r.count); } else {                         \
        run.with_mask([&](auto mask) {                                                                      \
          Name(run.dst<T>(), scalar, mask, static_cast<uint8_t>(run.r.repeats),                             \
               static_cast<uint16_t>(run.r.block_stride[0]), static_cast<uint8_t>(run.r.repeat_stride[0])); \
        });                                                                                                 \
      })

extern "C" __global__ __aicore__ void fill(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  FILL(Duplicate)
  FILL(CreateVecIndex)
  RUN_IF(
      ArithProgression, { ArithProgression(t, s, s, n); },
      ArithProgression(run.dst<T>(), static_cast<T>(run.r.scalar), static_cast<T>(run.r.option), run.r.count);)
  ASSERT(!"a function");
}
