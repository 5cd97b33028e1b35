// Casts a tensor from one format into another: what torch_npu asks the operator Identity for.
#pragma once

#include "tensor_desc.h"

namespace cann_cpu {

// A tensor of an operator on the aclop path.
struct Operand {
  aclTensorDesc desc;
  aclDataBuffer buffer;
};

// Two tensors of one shape and dtype, each stored row by row or in FRACTAL_NZ.
bool is_format_cast(const Operand& from, const Operand& to);

void cast_format(const Operand& from, const Operand& to);

}  // namespace cann_cpu
