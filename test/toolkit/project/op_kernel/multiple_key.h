// SPDX-License-Identifier: Apache-2.0
// The template arguments that the kernel of Multiple is compiled for.
#pragma once

#include "ascendc/host_api/tiling/template_argument.h"

namespace multiple {

constexpr uint64_t kThrice = 3;

ASCENDC_TPL_ARGS_DECL(Multiple, ASCENDC_TPL_DATATYPE_DECL(T, C_DT_FLOAT16, C_DT_FLOAT, ASCENDC_TPL_INPUT(0)),
                      ASCENDC_TPL_UINT_DECL(FACTOR, ASCENDC_TPL_4_BW, ASCENDC_TPL_UI_MIX, 1, 0, 2, 8, kThrice),
                      ASCENDC_TPL_BOOL_DECL(NEGATIVE, 0, 1), );

#define EITHER_SIGN(type)                                                                                    \
  ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_KERNEL_TYPE_SEL(ASCENDC_TPL_AIV_ONLY), ASCENDC_TPL_DATATYPE_SEL(T, type), \
                       ASCENDC_TPL_UINT_SEL(FACTOR, ASCENDC_TPL_UI_LIST, 2, 3), ASCENDC_TPL_BOOL_SEL(NEGATIVE, 0, 1))
ASCENDC_TPL_SEL(EITHER_SIGN(C_DT_FLOAT16), EITHER_SIGN(C_DT_FLOAT),
                ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_KERNEL_TYPE_SEL(ASCENDC_TPL_MIX_AIC_1_2),
                                     ASCENDC_TPL_DATATYPE_SEL(T, C_DT_FLOAT),
                                     ASCENDC_TPL_UINT_SEL(FACTOR, ASCENDC_TPL_UI_RANGE, 1, 0, 1),
                                     ASCENDC_TPL_BOOL_SEL(NEGATIVE, 1), ASCENDC_TPL_TILING_STRUCT_SEL(NegativeTiling)));

struct Tiling {
  uint32_t elements;
};
struct NegativeTiling {
  uint64_t elements;
};

}  // namespace multiple
