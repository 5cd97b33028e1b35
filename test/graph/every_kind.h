// SPDX-License-Identifier: Apache-2.0
// A prototype of every kind of input, output and attribute.
#pragma once

#include "graph/operator_reg.h"

namespace ge {

// Takes "everything" \ and """more""".
//
// A second paragraph.
REG_OP(EveryKind)
    .INPUT(x, "T")
    .OPTIONAL_INPUT(mask, TensorType({DT_BOOL}))
    .DYNAMIC_INPUT(in, TensorType::ALL())
    .OUTPUT(x, "T")
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT, DT_INT8}))
    .REQUIRED_ATTR(lambda, Float)
    .REQUIRED_ATTR(pads, ListListInt)
    .REQUIRED_ATTR(attr, Bool)
    .ATTR(i, Int, -9223372036854775807)
    .ATTR(f, Float, 1e-6f)
    .ATTR(whole, Float, 2)
    .ATTR(infinite, Float, std::numeric_limits<float>::infinity())
    .ATTR(b, Bool, true)
    .ATTR(s, String, "a \"quoted\" \\ word\n\x01 und ä")
    .ATTR(t, Type, DT_BF16)
    .ATTR(none, ListInt, {})
    .ATTR(li, ListInt, {7})
    .ATTR(lf, ListFloat, {0.5, 1.0, 0.1f})
    .ATTR(lb, ListBool, {true, false})
    .ATTR(ls, ListString, {"a", "b\"c"})
    .ATTR(lt, ListType, {DT_FLOAT, DT_INT64})
    .ATTR(lli, ListListInt, {{1, 2}, {3, 4}})
    .ATTR(llf, ListListFloat, {{1.5}, {}})
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_FLOAT}))
    .OP_END_FACTORY_REG(EveryKind);

REG_OP(Bare).OP_END_FACTORY_REG(Bare);

}  // namespace ge
