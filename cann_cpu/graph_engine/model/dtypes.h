// SPDX-License-Identifier: Apache-2.0
// Element types: the model file's numbers, GE's and ATen's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "graph/types.h"

namespace cann_cpu::graph {

// The type that a model file's number (ge.proto.DataType) stands for; DT_UNDEFINED for an unknown one.
ge::DataType dtype_of_model(int64_t number);

// The type of GE's own number, as attributes hold it; DT_UNDEFINED for a number that is none.
inline ge::DataType dtype_of_number(int64_t number) {
  return number >= 0 && number < ge::DT_MAX ? static_cast<ge::DataType>(number) : ge::DT_UNDEFINED;
}

// "DT_FLOAT16"; "data type 99" for an unknown one.
std::string dtype_name(ge::DataType dtype);

// ATen's type. Throws GraphError for one that ATen cannot compute with.
at::ScalarType scalar_type(ge::DataType dtype);

// GE's type. Throws GraphError for one that GE does not have.
ge::DataType ge_dtype(at::ScalarType type);

}  // namespace cann_cpu::graph
