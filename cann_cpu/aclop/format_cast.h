// SPDX-License-Identifier: Apache-2.0
// Casts a tensor from one format into another: what torch_npu asks the operator Identity for.
#pragma once

#include "cann_cpu/aclop.h"

namespace cann_cpu {

// Whether all tensors are stored row by row or in FRACTAL_NZ.
bool has_known_formats(const SingleOperator& op);

// Identity of two tensors of one shape and dtype.
bool is_format_cast(const SingleOperator& op);

void cast_format(const Operand& from, const Operand& to);

}  // namespace cann_cpu
