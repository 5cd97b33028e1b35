// SPDX-License-Identifier: Apache-2.0
// Mathematical functions, which have the form of a count only.
#include "request.h"

#define MATH(Name)                                                                                         \
  RUN_IF(                                                                                                  \
      Name, { Name(t, t, 1u); },                                                                           \
      if (run.r.flag) { Name(run.dst<T>(), run.src0<T>(), run.temporary<uint8_t>(), run.r.count); } else { \
        Name(run.dst<T>(), run.src0<T>(), run.r.count);                                                    \
      })

extern "C" __global__ __aicore__ void math(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  MATH(Sin)
  MATH(Cos)
  MATH(Tan)
  MATH(Asin)
  MATH(Acos)
  MATH(Atan)
  MATH(Sinh)
  MATH(Cosh)
  MATH(Tanh)
  MATH(Asinh)
  MATH(Acosh)
  MATH(Atanh)
  MATH(Erf)
  MATH(Erfc)
  MATH(Log)
  MATH(Log2)
  MATH(Log10)
  MATH(Sigmoid)
  MATH(Silu)
  MATH(Sign)
  MATH(Frac)
  MATH(Floor)
  MATH(Ceil)
  MATH(Trunc)
  MATH(Round)
  RUN_IF(Power, { Power(t, t, t, 1u); }, Power(run.dst<T>(), run.src0<T>(), run.src1<T>(), run.r.count);)
  RUN_IF(Xor, { Xor(t, t, t, 1u); }, Xor(run.dst<T>(), run.src0<T>(), run.src1<T>(), run.r.count);)
  RUN_IF(
      ClampMax, { ClampMax(t, t, s, 1u); },
      ClampMax(run.dst<T>(), run.src0<T>(), static_cast<T>(run.r.scalar), run.r.count);)
  RUN_IF(
      ClampMin, { ClampMin(t, t, s, 1u); },
      ClampMin(run.dst<T>(), run.src0<T>(), static_cast<T>(run.r.scalar), run.r.count);)
  ASSERT(!"a function");
}
