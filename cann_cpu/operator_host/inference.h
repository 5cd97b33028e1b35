// SPDX-License-Identifier: Apache-2.0
// Infers a call's outputs by the functions of SetInferShape and SetInferDataType, for callers that have none yet.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "attribute_value.h"
#include "definition.h"

namespace cann_cpu {

struct InferenceArguments {
  struct Input {
    ge::DataType type;
    std::vector<int64_t> shape;
    const void* values;  // null where they are not known
    size_t bytes;
  };
  std::vector<std::vector<Input>> inputs;  // of each defined one: none where it is left out, several of a dynamic one
  std::deque<AttributeValue> attributes;   // as they are defined
  std::vector<ge::DataType> outputs;       // where SetInferDataType's function says nothing
};

struct InferredTensor {
  std::vector<int64_t> shape;
  ge::DataType type;
};

// Throws std::runtime_error, which says which of the two functions failed, and for what.
CANN_EXPORT std::vector<InferredTensor> infer(const ops::Definition& definition, const InferenceArguments& arguments);

}  // namespace cann_cpu
