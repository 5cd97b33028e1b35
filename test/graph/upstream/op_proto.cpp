// SPDX-License-Identifier: Apache-2.0
// The prototypes that cann-recipes-infer's operator package registers for three of our operator types.
#include "graph/operator_reg.h"

namespace ge {

REG_OP(LightningIndexerPto)
    .DYNAMIC_INPUT(x, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT8, DT_INT32, DT_INT64}))
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT8, DT_INT32, DT_INT64}))
    .ATTR(score_scale, Float, 1)
    .OP_END_FACTORY_REG(LightningIndexerPto)

        REG_OP(LightningIndexerPrologPto)
    .DYNAMIC_INPUT(x, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT8, DT_INT32, DT_INT64}))
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT8, DT_INT32, DT_INT64}))
    .ATTR(layernorm_epsilon_k, Float, 1e-6)
    .ATTR(layout_query, String, "TND")
    .ATTR(layout_key, String, "PA_BSND")
    .OP_END_FACTORY_REG(LightningIndexerPrologPto)

        REG_OP(SparseAttentionPto)
    .DYNAMIC_INPUT(x, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT32, DT_INT64}))
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_INT32, DT_INT64}))
    .OP_END_FACTORY_REG(SparseAttentionPto)

}  // namespace ge
