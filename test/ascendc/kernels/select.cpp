// SPDX-License-Identifier: Apache-2.0
// Comparisons and selections. The bits that select are the last 256 bytes of src1, or all of it beside a scalar.
#include "request.h"

extern "C" __global__ __aicore__ void selection(GM_ADDR dst, GM_ADDR src0, GM_ADDR src1, GM_ADDR request) {
  Run run(dst, src0, src1, request);
  const auto mode = static_cast<CMPMODE>(run.r.option);
  const auto selection_mode = static_cast<SELMODE>(run.r.option);
  const auto repeats = static_cast<uint8_t>(run.r.repeats);
  const bool counted = run.r.form == kCount;
  RUN_IF(
      Compare, { Compare(t.template ReinterpretCast<uint8_t>(), t, t, CMPMODE::EQ, 1u); },
      if (counted) { Compare(run.dst<uint8_t>(), run.src0<T>(), run.src1<T>(), mode, run.r.count); } else {
        run.with_mask([&](auto mask) {
          Compare(run.dst<uint8_t>(), run.src0<T>(), run.src1<T>(), mode, mask, repeats, run.r.binary());
        });
      })
  RUN_IF(
      CompareScalar, { CompareScalar(t.template ReinterpretCast<uint8_t>(), t, s, CMPMODE::EQ, 1u); },
      const T scalar = static_cast<T>(run.r.scalar);
      if (counted) { CompareScalar(run.dst<uint8_t>(), run.src0<T>(), scalar, mode, run.r.count); } else {
        run.with_mask([&](auto mask) {
          CompareScalar(run.dst<uint8_t>(), run.src0<T>(), scalar, mode, mask, repeats, run.r.unary());
        });
      })
  RUN_IF(
      Select, { Select(t, t.template ReinterpretCast<uint8_t>(), t, t, SELMODE::VSEL_CMPMASK_SPR, 1u); },
      if (selection_mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) {
        const T scalar = static_cast<T>(run.r.scalar);
        const auto selection = run.src1<uint8_t>();
        if (counted) {
          Select(run.dst<T>(), selection, run.src0<T>(), scalar, selection_mode, run.r.count);
        } else {
          run.with_mask([&](auto mask) {
            Select(run.dst<T>(), selection, run.src0<T>(), scalar, selection_mode, mask, repeats, run.r.binary());
          });
        }
      } else {
        const auto selection = run.src1<uint8_t>()[run.r.bytes[2] - 256];
        if (counted) {
          Select(run.dst<T>(), selection, run.src0<T>(), run.src1<T>(), selection_mode, run.r.count);
        } else {
          run.with_mask([&](auto mask) {
            Select(run.dst<T>(), selection, run.src0<T>(), run.src1<T>(), selection_mode, mask, repeats,
                   run.r.binary());
          });
        }
      })
  ASSERT(!"a function");
}
