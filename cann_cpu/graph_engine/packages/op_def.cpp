// SPDX-License-Identifier: Apache-2.0
// Gives the functions of an OpDef a node's inputs and attributes.
#include "op_def.h"

#include <algorithm>

#include "graph_engine/model/dtypes.h"
#include "nnopbase/inference.h"

namespace cann_cpu::graph {
namespace {

template <class T>
bool take(const Attribute& given, AttributeValue& value) {
  const T* held = std::get_if<T>(&given);
  if (held != nullptr) {
    value.set(*held);
  }
  return held != nullptr;
}

bool set(const std::string& type, const Attribute& given, AttributeValue& value) {
  const auto* integer = std::get_if<int64_t>(&given);
  const auto* integers = std::get_if<std::vector<int64_t>>(&given);
  const bool empty = integers != nullptr && integers->empty();  // in a model, an empty list has no type of elements
  if (type == "Float") {
    return integer == nullptr ? take<float>(given, value) : (value.set(static_cast<float>(*integer)), true);
  }
  if (type == "ListFloat") {
    return empty ? (value.set(std::vector<float>()), true) : take<std::vector<float>>(given, value);
  }
  if (type == "ListBool") {
    const auto* flags = std::get_if<std::vector<bool>>(&given);
    if (flags != nullptr || empty) {
      value.set(empty ? std::vector<char>() : std::vector<char>(flags->begin(), flags->end()));
    }
    return flags != nullptr || empty;
  }
  if (type == "String") {
    const auto* text = std::get_if<std::string>(&given);
    return text != nullptr && (value.set(text->c_str()), true);
  }
  return type == "Int"       ? take<int64_t>(given, value)
         : type == "Bool"    ? take<bool>(given, value)
         : type == "ListInt" ? take<std::vector<int64_t>>(given, value)
                             : false;
}

void set(const ops::AttrDefinition& declared, const NodeCall& call, AttributeValue& value) {
  const Attribute* given = call.attribute(declared.name);
  if (given != nullptr) {
    if (!set(declared.type, *given, value)) {
      throw GraphError("attribute '" + declared.name + "', here " + to_text(*given) + ", is a " + declared.type +
                       " in its OpDef");
    }
  } else if (declared.has_value) {
    set_default(value, declared);
  } else {
    throw GraphError("attribute '" + declared.name + "' is missing");
  }
}

}  // namespace

void apply_op_def(const ops::Definition& definition, const NodeCall& call,
                  const std::vector<std::vector<size_t>>& groups, std::vector<InferredOutput>& outputs) {
  InferenceArguments arguments;
  std::vector<at::Tensor> values;  // lives as long as the functions may read it
  for (const auto& declared : definition.inputs) {
    const size_t place = arguments.inputs.size();
    const auto& read = definition.read_inputs;
    const bool reads = declared.value_depends || std::find(read.begin(), read.end(), place) != read.end();
    auto& tensors = arguments.inputs.emplace_back();
    for (const size_t i : groups[place]) {
      if (!call.has(i)) {
        continue;
      }
      tensors.push_back({ge_dtype(call.dtype(i)), call.shape(i), nullptr, 0});
      if (reads || call.is_constant(i)) {
        const at::Tensor& known = values.emplace_back(call.in(i).contiguous());
        tensors.back().values = known.const_data_ptr();
        tensors.back().bytes = known.nbytes();
      }
    }
  }
  for (const auto& declared : definition.attributes) {
    set(declared, call, arguments.attributes.emplace_back());
  }
  for (const auto& output : outputs) {
    arguments.outputs.push_back(output.dtype);
  }
  const auto inferred = infer(definition, arguments);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (definition.infer_shape != nullptr) {
      outputs[i].shape = inferred[i].shape;
    }
    outputs[i].dtype = inferred[i].type;
  }
}

}  // namespace cann_cpu::graph
