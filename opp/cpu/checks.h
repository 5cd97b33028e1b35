// SPDX-License-Identifier: Apache-2.0
// Checks of single arguments. They read no tensor's data and throw c10::Error, which names the argument.
#pragma once

#include <ATen/core/Tensor.h>

namespace opp {

// `whose` is the argument that the dtype is expected of, if any.
void check_dtype(const char* name, at::ScalarType dtype, at::ScalarType expected, const char* whose = nullptr);
void check_at_least_1(const char* name, const char* dimension, int64_t size);

}  // namespace opp
