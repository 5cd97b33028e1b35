// SPDX-License-Identifier: Apache-2.0
// Checks of single arguments. They read no tensor's data and throw c10::Error, which names the argument.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "cpu/linear.h"

namespace opp {

// `whose` is the argument that the dtype is expected of, if any.
void check_dtype(const char* name, at::ScalarType dtype, at::ScalarType expected, const char* whose = nullptr);
void check_weight(const char* name, const Weight& weight, int64_t depth, int64_t columns, const char* dimensions);
void check_at_least_1(const char* name, const char* dimension, int64_t size);
void check_finite(const char* name, double value);  // and not negative
void check_rope_mode(const char* name, const std::string& mode);

}  // namespace opp
