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

}  // namespace cann_cpu
