// SPDX-License-Identifier: Apache-2.0
// The text of a row: the names of its kernel's parameters, and the dtypes of its tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cann_cpu/executor.h"

namespace cann_cpu {

// The parameters in a lambda's source, without a Phase before them: "In self, Out out".
CANN_EXPORT std::string_view parameters_in(std::string_view source);

// Their names; empty for a parameter without a name.
CANN_EXPORT std::vector<std::string> parameter_names(std::string_view source);

// " (x)", the name of the parameter at a position that counts from 0; "" for one without a name.
CANN_EXPORT std::string in_brackets(const char* source, size_t position);

// Throws std::invalid_argument where a tensor has a dtype that the table leaves out. A table has an entry for each
// dtype or group of parameters; "as x" is the dtype that x has in this call:
//
//   "x: float16 bfloat16; gamma, beta: as x; scale: float32"
CANN_EXPORT void check_dtypes(std::string_view source, std::string_view dtypes, const Operands& operands);

}  // namespace cann_cpu
