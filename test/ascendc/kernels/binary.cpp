// SPDX-License-Identifier: Apache-2.0
// Functions of two tensors.
#include "request.h"

#define BINARY(Name)                                                                                                   \
  RUN_IF(                                                                                                              \
      Name, { Name(t, t, t, n); },                                                                                     \
      if (run.r.form == kCount) {                                                                                      \
        Name(run.dst<T>(), run.src0<T>(), run.src1<T>(), static_cast<int32_t>(run.r.count));                           \
      } else if constexpr (requires { Name(run.dst<T>(), run.src0<T>(), run.src1<T>(), 1ul, 1, run.r.binary()); }) {   \
        run.with_mask([&](auto mask) {                                                                                 \
          Name(run.dst<T>(), run.src0<T>(), run.src1<T>(), mask, static_cast<uint8_t>(run.r.repeats), run.r.binary()); \
        });                                                                                                            \
      } else { ASSERT(!"the function has the dtype"); })

extern "C" __global__ __aicore__ void binary(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  BINARY(Add)
  BINARY(Sub)
  BINARY(Mul)
  BINARY(Div)
  BINARY(Max)
  BINARY(Min)
  BINARY(And)
  BINARY(Or)
  BINARY(AddRelu)
  BINARY(SubRelu)
  BINARY(MulAddDst)
  BINARY(FusedMulAdd)
  BINARY(FusedMulAddRelu)
  ASSERT(!"a function");
}

#define BINARY_CAST(Name)                                                                                   \
  if (run.r.is(#Name)) {                                                                                    \
    with_dtype(run.r.dtype, [&]<class T>() {                                                                \
      with_dtype(run.r.to, [&]<class To>() {                                                                \
        if constexpr (requires(const LocalTensor<To>& d, const LocalTensor<T>& t) { Name(d, t, t, 1u); }) { \
          if (run.r.form == kCount) {                                                                       \
            Name(run.dst<To>(), run.src0<T>(), run.src1<T>(), run.r.count);                                 \
          } else {                                                                                          \
            run.with_mask([&](auto mask) {                                                                  \
              Name(run.dst<To>(), run.src0<T>(), run.src1<T>(), mask, static_cast<uint8_t>(run.r.repeats),  \
                   run.r.binary());                                                                         \
            });                                                                                             \
          }                                                                                                 \
        } else {                                                                                            \
          ASSERT(!"the function has the dtype");                                                            \
        }                                                                                                   \
      });                                                                                                   \
    });                                                                                                     \
    return;                                                                                                 \
  }

extern "C" __global__ __aicore__ void binary_cast(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  BINARY_CAST(AddReluCast)
  BINARY_CAST(SubReluCast)
  BINARY_CAST(MulCast)
  ASSERT(!"a function");
}
