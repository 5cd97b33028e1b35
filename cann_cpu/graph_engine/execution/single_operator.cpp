// SPDX-License-Identifier: Apache-2.0
// Runs an operator of the aclop path: a graph of one node.
#include <ATen/TensorUtils.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <sstream>
#include <variant>

#include "cann_cpu/aclop.h"
#include "cann_cpu/export.h"
#include "cann_cpu/runtime.h"
#include "execution.h"
#include "graph_engine/compiled_graph/stored_tensor.h"
#include "graph_engine/nodes/node_types.h"
#include "graph_engine/packages/custom_node.h"
#include "graph_engine/packages/prototypes.h"

namespace cann_cpu::graph {
namespace {

Attribute attribute(const aclopAttr::Value& value) {
  return std::visit(
      [](const auto& held) -> Attribute {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, aclDataType>) {
          return static_cast<ge::DataType>(held);
        } else if constexpr (std::is_same_v<Held, std::vector<aclDataType>>) {
          std::vector<ge::DataType> types;
          for (const aclDataType type : held) types.push_back(static_cast<ge::DataType>(type));
          return types;
        } else {
          return held;
        }
      },
      value);
}

// An optional input that the caller leaves out.
bool is_absent(const Operand& operand) { return operand.desc.type == ACL_DT_UNDEFINED; }

TensorDescription description(const Operand& operand, const std::string& name = "") {
  return {operand.desc.name.empty() ? name : operand.desc.name,
          static_cast<ge::DataType>(operand.desc.type),
          true,
          operand.desc.dims,
          "",
          ""};
}

// What a package's prototype calls its tensors; callers name them by their position.
std::string name_of(const std::vector<PrototypeTensor>& tensors, size_t i) {
  if (i < tensors.size() && tensors[i].arity != Arity::dynamic) return tensors[i].name;
  const bool in_list = !tensors.empty() && tensors.back().arity == Arity::dynamic && i + 1 >= tensors.size();
  return in_list ? tensors.back().name + std::to_string(i + 1 - tensors.size()) : "";
}

std::shared_ptr<const Model> model_of(const SingleOperator& op) {
  auto model = std::make_shared<Model>();
  model->name = op.type;
  ModelNode node{op.type, op.type, {}, {}, {}, {}};
  ModelNode results{"results", "NetOutput", {}, {}, {}, {}};
  for (const auto& [name, value] : op.attributes.values) {
    node.attributes.emplace(name, attribute(value));
  }
  static const Prototype kNone;
  const Prototype* known = find_node_type(op.type) == nullptr ? find_prototype(op.type) : nullptr;
  const Prototype& prototype = known == nullptr ? kNone : *known;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Operand& input = op.inputs[i];
    if (is_absent(input)) {
      node.inputs.emplace_back();
      continue;
    }
    const auto index = static_cast<int64_t>(model->nodes.size());
    const std::string name = "input " + std::to_string(index);
    model->nodes.push_back({name, "Data", {}, {{"index", index}}, {}, {description(input)}});
    node.inputs.push_back(name + ":0");
    node.input_descriptions.push_back(description(input, name_of(prototype.inputs, i)));
  }
  for (const Operand& output : op.outputs) {
    results.inputs.push_back(op.type + ":" + std::to_string(results.inputs.size()));
    results.input_descriptions.push_back(description(output));
    node.output_descriptions.push_back(
        description(output, name_of(prototype.outputs, node.output_descriptions.size())));
  }
  model->nodes.push_back(std::move(node));
  model->nodes.push_back(std::move(results));
  return model;
}

StoredTensor stored(const Operand& operand) {
  const aclTensorDesc& desc = operand.desc;
  return stored_tensor(operand.buffer.data, static_cast<ge::DataType>(desc.type), desc.dims,
                       desc.is_fractal_nz() ? ge::FORMAT_FRACTAL_NZ : ge::FORMAT_ND,
                       desc.is_fractal_nz() ? desc.storage_dims : desc.dims);
}

// Where a result is written: the output's memory, or rows that are laid out in it afterwards.
at::Tensor target_of(const StoredTensor& output) {
  return output.format == ACL_FORMAT_ND ? output.tensor : output.tensor.new_empty(output.shape);
}

void lay_out(const at::Tensor& rows, const StoredTensor& output) {
  if (output.format != ACL_FORMAT_ND) {
    const FractalNz matrices(output.shape, output.tensor.sizes().vec(), output.tensor.element_size());
    matrices.to_blocks(rows.const_data_ptr(), output.tensor.mutable_data_ptr());
  }
}

// Writes a result whose shape the operator determines, and describes it. The caller uses the memory with the layout of
// the largest result, so in FRACTAL_NZ this result is its first elements, row by row.
void write_decided(size_t i, const at::Tensor& result, const StoredTensor& memory, aclTensorDesc& desc) {
  const at::Tensor rows = target_of(memory);
  if (result.scalar_type() != rows.scalar_type() || result.numel() > rows.numel()) {
    std::ostringstream text;
    text << "output " << i << " has " << result.numel() << " elements of " << result.scalar_type()
         << ", the caller's memory is for " << rows.numel() << " of " << rows.scalar_type();
    throw GraphError(text.str());
  }
  rows.as_strided(result.sizes(), at::detail::defaultStrides(result.sizes())).copy_(result);
  lay_out(rows, memory);
  desc.dims = result.sizes().vec();
}

void run(SingleOperator& op, aclrtStream stream) {
  const c10::InferenceMode no_autograd;
  std::vector<StoredTensor> inputs;
  for (const Operand& input : op.inputs) {
    if (!is_absent(input)) {
      inputs.push_back(stored(input));
    }
  }
  std::vector<StoredTensor> outputs;
  std::vector<at::Tensor> targets;
  for (const Operand& output : op.outputs) {
    outputs.push_back(stored(output));
    targets.push_back(op.decides_shapes ? at::Tensor() : target_of(outputs.back()));
  }
  std::vector<at::Tensor> results = run_nodes(CompiledGraph(model_of(op), {}), inputs, targets, stream);
  for (size_t i = 0; i < outputs.size(); ++i) {
    // torch_npu describes what it slices without the dimensions of size 1.
    if (targets[i].defined() && results[i].numel() == targets[i].numel()) {
      results[i] = results[i].reshape(targets[i].sizes());
    }
  }
  write_outputs(results, targets);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (op.decides_shapes) {
      write_decided(i, results[i], outputs[i], op.outputs[i].desc);
    } else {
      lay_out(targets[i], outputs[i]);
    }
  }
}

}  // namespace
}  // namespace cann_cpu::graph

extern "C" CANN_EXPORT aclError cann_cpu_run_operator(cann_cpu::SingleOperator& op, aclrtStream stream) {
  using namespace cann_cpu;
  std::string reason;
  if (graph::find_node_type(op.type) == nullptr && graph::find_custom_node(op.type, reason) == nullptr) {
    return ACL_ERROR_OP_NOT_FOUND;
  }
  try {
    graph::run(op, stream);
    return ACL_SUCCESS;
  } catch (const std::exception& e) {
    return error(ACL_ERROR_RT_AICPU_EXCEPTION, "%s", e.what());
  }
}
