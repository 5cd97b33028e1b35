// SPDX-License-Identifier: Apache-2.0
// Checks of single arguments. They read no tensor's data and throw c10::Error, which names the argument.
#include "cpu/checks.h"

#include <c10/util/Exception.h>

#include <cmath>

namespace opp {

void check_dtype(const char* name, at::ScalarType dtype, at::ScalarType expected, const char* whose) {
  TORCH_CHECK(dtype == expected, name, whose ? c10::str(" must have ", whose, "'s dtype, ") : " must be ", expected,
              ", but is ", dtype);
}

void check_weight(const char* name, const Weight& weight, int64_t depth, int64_t columns, const char* dimensions) {
  TORCH_CHECK(weight.depth == depth && weight.columns == columns, name, " must have shape ", dimensions, " = ",
              at::IntArrayRef({depth, columns}), ", but has ", at::IntArrayRef({weight.depth, weight.columns}));
}

void check_at_least_1(const char* name, const char* dimension, int64_t size) {
  TORCH_CHECK(size >= 1, name, " must have a size ", dimension, " of at least 1, but it is ", size);
}

void check_finite(const char* name, double value) {
  TORCH_CHECK(std::isfinite(value) && value >= 0, name, " must be a finite number of at least 0, but is ", value);
}

void check_rope_mode(const char* name, const std::string& mode) {
  TORCH_CHECK(mode == "interleave" || mode == "half", name, " must be interleave or half, but is '", mode, "'");
}

}  // namespace opp
