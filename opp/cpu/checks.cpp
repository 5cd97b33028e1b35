// SPDX-License-Identifier: Apache-2.0
// Checks of single arguments. They read no tensor's data and throw c10::Error, which names the argument.
#include "cpu/checks.h"

#include <c10/util/Exception.h>

namespace opp {

void check_dtype(const char* name, at::ScalarType dtype, at::ScalarType expected, const char* whose) {
  TORCH_CHECK(dtype == expected, name, whose ? c10::str(" must have ", whose, "'s dtype, ") : " must be ", expected,
              ", but is ", dtype);
}

void check_at_least_1(const char* name, const char* dimension, int64_t size) {
  TORCH_CHECK(size >= 1, name, " must have a size ", dimension, " of at least 1, but it is ", size);
}

}  // namespace opp
