// SPDX-License-Identifier: Apache-2.0
// Prototypes of a small operator package: every kind of input, output and attribute.
#include "graph/operator_reg.h"

namespace ge {

REG_OP(ProbeKinds)
    .INPUT(x, TensorType({DT_FLOAT, DT_INT64}))
    .OPTIONAL_INPUT(bias, TensorType({DT_FLOAT}))
    .DYNAMIC_INPUT(rest, TensorType::ALL())
    .OUTPUT(y, "T")
    .DYNAMIC_OUTPUT(ys, "T")
    .DATATYPE(T, TensorType({DT_FLOAT, DT_INT32}))
    .ATTR(an_int, Int, 7)
    .ATTR(a_float, Float, 0.5)
    .ATTR(a_bool, Bool, true)
    .ATTR(a_string, String, "text")
    .ATTR(a_type, Type, DT_FLOAT)
    .ATTR(ints, ListInt, {1, 2, 3})
    .ATTR(floats, ListFloat, {1.5, 2.5})
    .ATTR(bools, ListBool, {true, false})
    .ATTR(strings, ListString, {"a", "b", "c"})
    .ATTR(types, ListType, {DT_FLOAT, DT_INT32})
    .ATTR(nested, ListListInt, {{1, 2}, {3}})
    .REQUIRED_ATTR(needed_int, Int)
    .REQUIRED_ATTR(needed_floats, ListFloat)
    .OP_END_FACTORY_REG(ProbeKinds)

    // y = (x + bias) * scale + shift, then the sum of rest is added; text says which way.
    REG_OP(ProbeMix)
    .INPUT(x, TensorType({DT_FLOAT}))
    .OPTIONAL_INPUT(bias, TensorType({DT_FLOAT}))
    .DYNAMIC_INPUT(rest, TensorType({DT_FLOAT}))
    .OUTPUT(y, TensorType({DT_FLOAT}))
    .OUTPUT(total, TensorType({DT_FLOAT}))
    .ATTR(scale, Float, 1.0)
    .ATTR(shift, Int, 0)
    .ATTR(negate, Bool, false)
    .ATTR(mode, String, "plain")
    .ATTR(weights, ListFloat, {})
    .OP_END_FACTORY_REG(ProbeMix)

    // self += other, and also += other if it is given.
    REG_OP(ProbeIncrement)
    .INPUT(self, TensorType({DT_FLOAT}))
    .INPUT(other, TensorType({DT_FLOAT}))
    .OPTIONAL_INPUT(also, TensorType({DT_FLOAT}))
    .OUTPUT(self, TensorType({DT_FLOAT}))
    .OUTPUT(also, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(ProbeIncrement)

    // y = x, and the number of the format that x lies in.
    REG_OP(ProbeStored)
    .INPUT(x, TensorType({DT_FLOAT16, DT_BF16, DT_INT8}))
    .OUTPUT(y, TensorType({DT_FLOAT16, DT_BF16, DT_INT8}))
    .OUTPUT(format, TensorType({DT_INT32}))
    .OP_END_FACTORY_REG(ProbeStored)

    // The rows of x are written to the slots of cache; doubled = 2 x, address is where the kernel found the cache.
    REG_OP(ProbeAppend)
    .INPUT(x, TensorType({DT_FLOAT}))
    .INPUT(cache, TensorType({DT_FLOAT}))
    .INPUT(slots, TensorType({DT_INT64}))
    .OUTPUT(doubled, TensorType({DT_FLOAT}))
    .OUTPUT(address, TensorType({DT_INT64}))
    .OUTPUT(cache, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(ProbeAppend)

    // The same, of lists: x is x, cache and slots, y is doubled and address. That the cache is written is not declared.
    REG_OP(ProbeAppendList)
    .DYNAMIC_INPUT(x, TensorType({DT_FLOAT, DT_INT64}))
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT, DT_INT64}))
    .OP_END_FACTORY_REG(ProbeAppendList)

    // Its kernel fails where x is negative.
    REG_OP(ProbeFail)
    .INPUT(x, TensorType({DT_FLOAT}))
    .OUTPUT(y, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(ProbeFail)

    // It has no aclnn functions.
    REG_OP(ProbeMissing)
    .INPUT(x, TensorType({DT_FLOAT}))
    .OUTPUT(y, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(ProbeMissing)

}  // namespace ge
