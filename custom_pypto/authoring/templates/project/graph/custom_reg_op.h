// The Graph Engine prototypes of the operators of my_ops: what a node of each type takes and gives.
#pragma once

#include "graph/operator_reg.h"

namespace ge {

// out = cap * tanh(x / cap).
REG_OP(Softcap)
    .INPUT(x, "T")
    .OUTPUT(out, "T")
    .ATTR(cap, Float, 30.0)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT}))
    .OP_END_FACTORY_REG(Softcap);

}  // namespace ge
