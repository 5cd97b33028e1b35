// SPDX-License-Identifier: Apache-2.0
// Executes a node of an operator package through aclnn<Type>GetWorkspaceSize and aclnn<Type>.
#include "custom_node.h"

#include <ATen/ops/empty.h>

#include <optional>
#include <sstream>

#include "graph_engine/model/dtypes.h"
#include "inference_rule.h"
#include "op_def.h"
#include "prototypes.h"

namespace cann_cpu::graph {
namespace {

// Appends an attribute, or the prototype's default when the node does not have it.
void pass_attribute(const PrototypeAttribute& declared, const NodeCall& call, AclnnArguments& arguments) {
  const Attribute* given = call.attribute(declared.name);
  const Attribute& value = given == nullptr ? declared.default_value : *given;
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if (declared.type == "VT_FLOAT") {
      arguments.real(static_cast<double>(*integer));
    } else {
      arguments.integer(static_cast<uint64_t>(*integer));
    }
  } else if (const auto* real = std::get_if<float>(&value)) {
    arguments.real(widened(*real));
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    arguments.integer(*flag ? 1 : 0);
  } else if (const auto* dtype = std::get_if<ge::DataType>(&value)) {
    arguments.integer(static_cast<uint64_t>(*dtype));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    arguments.text(*text);
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    arguments.array(*reals);
  } else if (const auto* flags = std::get_if<std::vector<bool>>(&value)) {
    arguments.array(*flags);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    // An empty list in a model has no type of elements.
    if (integers->empty() && declared.type == "VT_LIST_FLOAT") {
      arguments.array(std::vector<float>());
    } else if (integers->empty() && declared.type == "VT_LIST_BOOL") {
      arguments.array(std::vector<bool>());
    } else {
      arguments.array(*integers);
    }
  } else {
    throw GraphError("attribute '" + declared.name + "' of type " + declared.type +
                     (std::holds_alternative<std::monostate>(value) ? " is missing" : " cannot be passed to aclnn"));
  }
}

// Which of a node's inputs belong to each input of the prototype, by name: none to an optional one that the node leaves
// out, and x0, x1, ... to a dynamic one named x.
std::vector<std::vector<size_t>> group_inputs(const NodeCall& call, const Prototype& prototype) {
  const auto& descriptions = call.node().input_descriptions;
  const auto position = [&](const std::string& name) {
    size_t i = 0;
    while (i < descriptions.size() && descriptions[i].name != name) {
      ++i;
    }
    return i;
  };
  std::vector<std::vector<size_t>> groups;
  size_t known = 0;
  for (const auto& declared : prototype.inputs) {
    auto& group = groups.emplace_back();
    if (declared.arity == Arity::dynamic) {
      size_t i;
      while ((i = position(declared.name + std::to_string(group.size()))) < descriptions.size()) {
        group.push_back(i);
      }
    } else if (const size_t i = position(declared.name); i < descriptions.size()) {
      group.push_back(i);
    }
    known += group.size();
  }
  if (known < descriptions.size()) {
    throw GraphError("it has " + std::to_string(descriptions.size()) + " inputs, but its prototype only " +
                     std::to_string(known));
  }
  return groups;
}

std::vector<InferredOutput> described_outputs(const ModelNode& node) {
  std::vector<InferredOutput> outputs;
  for (const auto& description : node.output_descriptions) {
    bool known = description.has_shape;
    for (const int64_t dim : description.shape) {
      known = known && dim >= 0;
    }
    if (!known) {
      throw GraphError("the shape of its output '" + description.name +
                       "' is unknown: the node has no attribute _inference_rule, and its output description no shape. "
                       "torchair writes the rule from the operator's Meta function: does it have one?");
    }
    outputs.push_back({description.shape, description.dtype});
  }
  return outputs;
}

std::vector<InferredOutput> hinted_outputs(const NodeCall& call, const std::string& rule) {
  if (rule.empty()) {
    return described_outputs(call.node());
  }
  RuleInputs inputs;
  inputs.shape = [&](size_t i) { return call.has(i) ? std::optional(call.shape(i)) : std::nullopt; };
  inputs.values = [&](size_t i) { return call.has(i) ? std::optional(call.integers(i)) : std::nullopt; };
  return apply_inference_rule(rule, inputs);
}

// As in CANN, the functions that a package registers go before the rule that torchair writes.
std::vector<InferredOutput> infer_outputs(const NodeCall& call, const Prototype& prototype,
                                          const std::vector<std::vector<size_t>>& inputs) {
  const std::string rule = call.text("_inference_rule", "");
  const ops::Definition* definition = prototype.definition.get();
  const bool shapes = definition != nullptr && definition->infer_shape != nullptr;
  const bool dtypes = definition != nullptr && definition->infer_data_type != nullptr;
  std::vector<InferredOutput> outputs;
  if (shapes && (dtypes || rule.empty())) {
    for (const auto& description : call.node().output_descriptions) {
      outputs.push_back({{}, description.dtype});
    }
  } else {
    outputs = hinted_outputs(call, rule);
  }
  if (shapes || dtypes) {
    apply_op_def(*definition, call, inputs, outputs);
  }
  return outputs;
}

// New memory as on a device, whose kernels may write the whole of the last block of 32 bytes.
at::Tensor in_whole_blocks(const InferredOutput& output) {
  constexpr int64_t kBlockBytes = 32;
  const auto options = at::TensorOptions().dtype(scalar_type(output.dtype));
  const int64_t elements = c10::multiply_integers(output.shape);
  return at::empty({elements + kBlockBytes}, options).narrow(0, 0, elements).view(output.shape);
}

// The node's outputs: new memory, or the memory of the input with the same name. An output is empty if the node omits
// that input.
Outputs make_outputs(NodeCall& call, const Prototype& prototype, const std::vector<std::vector<size_t>>& inputs) {
  const auto& descriptions = call.node().output_descriptions;
  std::optional<std::vector<InferredOutput>> inferred;
  std::vector<at::Tensor> outputs;
  for (size_t k = 0; k < descriptions.size(); ++k) {
    size_t shared = 0;
    while (shared < prototype.inputs.size() && prototype.inputs[shared].name != descriptions[k].name) {
      ++shared;
    }
    if (shared < prototype.inputs.size()) {
      const bool given = !inputs[shared].empty() && call.has(inputs[shared][0]);
      outputs.push_back(given ? call.writable(inputs[shared][0]) : at::empty({0}));
      continue;
    }
    if (!inferred) {
      inferred = infer_outputs(call, prototype, inputs);
    }
    if (k >= inferred->size()) {
      throw GraphError("_inference_rule says nothing of its output '" + descriptions[k].name + "'");
    }
    outputs.push_back(in_whole_blocks((*inferred)[k]));
  }
  return outputs;
}

// An input with ValueDepend, whose values inference and tiling read: the aclnn function takes an array of the host.
void check_values(const at::Tensor& tensor, const ops::ParamDefinition& declared) {
  const ge::DataType expected = declared.types[0];
  if (scalar_type(expected) != tensor.scalar_type() || tensor.dim() > 1 || declared.presence == ops::DYNAMIC) {
    std::ostringstream given;
    given << dtype_name(ge_dtype(tensor.scalar_type())) << tensor.sizes();
    throw GraphError("its input '" + declared.name + "' is " + given.str() +
                     "; with ValueDepend it is passed as a list of " + dtype_name(expected));
  }
}

void pass_values(const at::Tensor& tensor, ge::DataType expected, AclnnArguments& arguments) {
  const at::Tensor values = tensor.contiguous();
  const auto list = [&](const auto* first) { return std::vector(first, first + values.numel()); };
  if (expected == ge::DT_FLOAT) {
    arguments.array(list(values.const_data_ptr<float>()));
  } else if (expected == ge::DT_BOOL) {
    arguments.array(list(values.const_data_ptr<bool>()));
  } else {
    arguments.array(list(values.const_data_ptr<int64_t>()));
  }
}

void pass_inputs(const NodeCall& call, const Prototype& prototype, const std::vector<std::vector<size_t>>& groups,
                 AclnnArguments& arguments) {
  for (size_t i = 0; i < prototype.inputs.size(); ++i) {
    const auto& declared = prototype.inputs[i];
    if (declared.read != nullptr && !groups[i].empty() && call.has(groups[i][0])) {
      pass_values(call.in(groups[i][0]), declared.read->types[0], arguments);
    } else if (declared.arity == Arity::dynamic) {
      std::vector<StoredTensor> tensors;
      for (const size_t input : groups[i]) {
        tensors.push_back(call.stored(input));
      }
      arguments.list(tensors);
    } else if (!groups[i].empty() && call.has(groups[i][0])) {
      arguments.tensor(call.stored(groups[i][0]));
    } else if (declared.arity == Arity::optional) {
      arguments.tensor(at::Tensor());
    } else {
      throw GraphError("its input '" + declared.name + "' is missing");
    }
  }
}

void pass_outputs(const NodeCall& call, const Prototype& prototype, const Outputs& outputs, AclnnArguments& arguments) {
  const auto& descriptions = call.node().output_descriptions;
  size_t next = 0;
  for (const auto& declared : prototype.outputs) {
    if (declared.arity == Arity::dynamic) {
      std::vector<StoredTensor> tensors;
      while (next < outputs.size() && descriptions[next].name == declared.name + std::to_string(tensors.size())) {
        tensors.push_back(in_rows(outputs[next++]));
      }
      arguments.list(tensors);
      continue;
    }
    if (next >= outputs.size()) {
      throw GraphError("its output '" + declared.name + "' is missing");
    }
    if (!prototype.has_input(declared.name)) {  // else the input's parameter serves both
      arguments.tensor(outputs[next]);
    }
    ++next;
  }
}

}  // namespace

Outputs CustomNode::run(NodeCall& call) const {
  const auto groups = group_inputs(call, *prototype);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto* read = prototype->inputs[i].read;
    for (const size_t input : groups[i]) {
      if (read != nullptr && call.has(input)) {
        check_values(call.in(input), *read);
      }
    }
  }
  Outputs outputs = make_outputs(call, *prototype, groups);
  AclnnArguments arguments;
  pass_inputs(call, *prototype, groups, arguments);
  for (const auto& declared : prototype->attributes) {
    pass_attribute(declared, call, arguments);
  }
  pass_outputs(call, *prototype, outputs, arguments);
  call.check_all_read();
  arguments.call(function, call.stream());
  return outputs;
}

std::shared_ptr<const CustomNode> find_custom_node(const std::string& type, std::string& reason) {
  const Prototype* prototype = find_prototype(type);
  if (prototype == nullptr) {
    const std::string& errors = package_errors();
    reason = "it is not a built-in node type, and no operator package has a REG_OP prototype of it" +
             (errors.empty() ? "" : " (" + errors + ")");
    return nullptr;
  }
  const auto function = find_aclnn("aclnn" + type, reason);
  return function ? std::make_shared<CustomNode>(CustomNode{prototype, *function}) : nullptr;
}

}  // namespace cann_cpu::graph
