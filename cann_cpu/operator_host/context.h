// SPDX-License-Identifier: Apache-2.0
// A call as inference and tiling see it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "definition.h"
#include "exe_graph/runtime/tiling_context.h"

namespace cann_cpu {

struct OperatorCall {
  // Which of the tensors belong to a defined parameter.
  struct Span {
    size_t first;
    size_t count;
  };

  std::string type;
  std::vector<gert::Tensor> inputs, outputs;  // those that are given
  std::vector<Span> input_spans, output_spans;
  std::vector<const void*> attributes;
  void* compile_info = nullptr;

  // What inference says.
  std::vector<gert::Shape> shapes;
  std::vector<ge::DataType> types;
  // What tiling says.
  gert::TilingData tiling{nullptr, 0};
  std::vector<size_t> workspaces;
  uint64_t key = 0;
  uint32_t blocks = 0;
};

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

}  // namespace cann_cpu
