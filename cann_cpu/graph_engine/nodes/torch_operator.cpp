// SPDX-License-Identifier: Apache-2.0
// Operators that Python has registered with PyTorch: python/cann_cpu/torch_operator.py calls them.
#include "torch_operator.h"

#include <ATen/ops/empty.h>

#include "acl/acl_rt.h"
#include "cann_cpu/export.h"
#include "cann_cpu/gil.h"
#include "cann_cpu/python_function.h"
#include "graph_engine/model/dtypes.h"
#include "table.h"

namespace cann_cpu::graph {

// A tensor in rows, as Python reads it.
struct OperatorTensor {
  void* data;
  int32_t dtype;  // of at::ScalarType
  int32_t dims;
  const int64_t* sizes;
};

namespace {

using Results = std::vector<at::Tensor>;

// Calls an operator with the inputs, and with the arguments of the attribute; adds its results. Returns a code with the
// message of aclGetRecentErrMsg.
using CallOperator = int (*)(const char* name, const char* arguments, const OperatorTensor* inputs, size_t count,
                             aclrtStream stream, Results* results);
CallOperator call_operator = nullptr;

OperatorTensor described(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<int32_t>(tensor.scalar_type()), static_cast<int32_t>(tensor.dim()),
          tensor.sizes().data()};
}

// Outputs with the name of an input are that input, which the operator writes to. The others are the results, in order.
Outputs called(NodeCall& n) {
  std::vector<at::Tensor> inputs(n.input_count());
  std::vector<OperatorTensor> tensors(n.input_count());
  const auto& outputs = n.node().output_descriptions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!n.has(i)) continue;
    const bool is_written =
        std::any_of(outputs.begin(), outputs.end(), [&](const auto& output) { return output.name == n.input_name(i); });
    inputs[i] = is_written ? n.writable(i) : n.contiguous(i);
    tensors[i] = described(inputs[i]);
  }
  Results results;
  const std::string name = n.text("operator", ""), arguments = n.text("arguments", "");
  const auto call = [&] {
    const WithGil calls_python;
    return call_operator(name.c_str(), arguments.c_str(), tensors.data(), tensors.size(), n.stream(), &results);
  };
  if (call() != 0) {
    const char* message = aclGetRecentErrMsg();
    throw GraphError(message == nullptr ? "it failed" : message);
  }
  std::vector<at::Tensor> all;
  size_t next = 0;
  for (const auto& output : outputs) {
    size_t i = 0;
    while (i < inputs.size() && n.input_name(i) != output.name) ++i;
    if (i < inputs.size()) {
      all.push_back(inputs[i].defined() ? inputs[i] : at::empty({0}));
    } else if (next < results.size()) {
      all.push_back(results[next++]);
    } else {
      throw GraphError("it gives " + std::to_string(results.size()) + " tensors, and the graph expects more");
    }
  }
  return all;
}

}  // namespace

void import_torch_operators() {
  if (call_operator != nullptr) return;
  const auto is_initialized = python_function<int()>("Py_IsInitialized");
  if (is_initialized == nullptr || is_initialized() == 0) throw GraphError("it needs Python, in which it is written");
  const auto ensure = python_function<int()>("PyGILState_Ensure");
  const auto run = python_function<int(const char*, void*)>("PyRun_SimpleStringFlags");
  const auto release = python_function<void(int)>("PyGILState_Release");
  const int state = ensure();
  run("__import__('cann_cpu.torch_operator')", nullptr);  // prints an error
  release(state);
  if (call_operator == nullptr) throw GraphError("the module cann_cpu.torch_operator cannot be imported");
}

const NodeTable kTorchOperatorNodes = {
    {"TorchOperator", called, "", "operator arguments"},
};

}  // namespace cann_cpu::graph

using namespace cann_cpu::graph;

extern "C" CANN_EXPORT void cann_cpu_set_torch_operator(CallOperator call) { call_operator = call; }

// The memory of the operator's next result, which stays the node's.
extern "C" CANN_EXPORT void* cann_cpu_add_result(Results* results, int32_t dtype, int32_t dims, const int64_t* sizes) {
  results->push_back(
      at::empty(at::IntArrayRef(sizes, dims), at::TensorOptions().dtype(static_cast<at::ScalarType>(dtype))));
  return results->back().data_ptr();
}
