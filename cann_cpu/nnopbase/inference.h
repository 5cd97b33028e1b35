// SPDX-License-Identifier: Apache-2.0
// Calls the functions of SetInferShape and SetInferDataType.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "attribute_value.h"
#include "metadef/context.h"

namespace cann_cpu {

// Calls the functions of inference, which set shapes and types. Throws CallError: which of them failed, for what.
void infer(const ops::Definition& definition, OperatorCall& call);

// "x float16[8, 2048], y ..."
std::string arguments_of(const ops::Definition& definition, const OperatorCall& call);
std::string text_of(const std::vector<int64_t>& shape);
// "the function of SetTiling" of an operator: while it lives, a crash in this thread says what was called for what.
class AuthorsFunction {
 public:
  AuthorsFunction(const char* name, const ops::Definition& definition, const OperatorCall& call);
  ~AuthorsFunction();
  AuthorsFunction(const AuthorsFunction&) = delete;
  AuthorsFunction& operator=(const AuthorsFunction&) = delete;

  const std::string& name() const { return name_; }
  const std::string& given() const { return given_; }

 private:
  std::string name_, given_;
  const AuthorsFunction* outer_;
};
// ": " and what an author's function logged before it failed, if it did.
std::string logged_reason();

// A call by a caller that has no outputs yet.
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
