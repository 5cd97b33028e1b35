// SPDX-License-Identifier: Apache-2.0
// Turns operators that a program has connected into a model, as torchair's graphs come in one.
#include <algorithm>
#include <set>

#include "operator_impl.h"

namespace cann_cpu::graph {
namespace {

using Operators = std::vector<std::shared_ptr<ge::OperatorImpl>>;

const TensorDescription* find_description(const std::vector<TensorDescription>& descriptions, const std::string& name) {
  const auto found = std::ranges::find(descriptions, name, &TensorDescription::name);
  return found == descriptions.end() ? nullptr : &*found;
}

// An edge may have been removed.
bool reads(const ge::OperatorImpl& reader, const std::shared_ptr<ge::OperatorImpl>& op) {
  return std::ranges::find(reader.inputs, op, &ge::OperatorImpl::Input::source) != reader.inputs.end() ||
         std::ranges::find(reader.controls, op) != reader.controls.end();
}

// The operators in the order in which they are found, from these on, against the edges and along them.
Operators connected(Operators operators) {
  std::set<const ge::OperatorImpl*> found;
  std::erase_if(operators, [&](const auto& op) { return !found.insert(op.get()).second; });
  const auto add = [&](std::shared_ptr<ge::OperatorImpl> op) {
    if (op != nullptr && found.insert(op.get()).second) operators.push_back(std::move(op));
  };
  for (size_t i = 0; i < operators.size(); ++i) {
    const auto op = operators[i];
    for (const auto& input : op->inputs) add(input.source);
    for (const auto& control : op->controls) add(control);
    for (const auto& user : op->users) {
      if (const auto reader = user.lock(); reader != nullptr && reads(*reader, op)) add(reader);
    }
  }
  return operators;
}

// The place of an output among those that the operator declares, or that were described in order.
size_t place_of_output(const ge::OperatorImpl& op, const std::string& output) {
  if (output.empty()) return 0;
  const auto& declared = op.prototype.outputs;
  const auto& described = op.output_descriptions;
  size_t place = std::ranges::find(described, output, &TensorDescription::name) - described.begin();
  if (place < described.size()) return place;
  place = std::ranges::find(declared, output, &PrototypeTensor::name) - declared.begin();
  if (place < declared.size()) return place;
  if (described.size() <= 1 && declared.size() <= 1) return 0;
  throw GraphError("node '" + op.name + "' of type " + op.prototype.type + " has no output '" + output + "'");
}

std::string edge(const OutputOfOperator& source, size_t place = 0) {
  return source.op->name + ":" +
         std::to_string(source.output.empty() ? place : place_of_output(*source.op, source.output));
}

// What a prototype declares comes first, in its order; the rest as it was set. Absent optional inputs keep their
// places.
void add_inputs(const ge::OperatorImpl& op, ModelNode& node) {
  std::set<std::string> added;
  const auto add = [&](const std::string& name, const ge::OperatorImpl::Input* input) {
    added.insert(name);
    const bool is_there = input != nullptr && input->source != nullptr;
    node.inputs.push_back(is_there ? edge({input->source, input->output}, input->place) : "");
    const TensorDescription* description = find_description(op.input_descriptions, name);
    node.input_descriptions.push_back(description == nullptr ? TensorDescription() : *description);
    node.input_descriptions.back().name = name;
  };
  const auto find = [&](const std::string& name) {
    const auto found = std::ranges::find(op.inputs, name, &ge::OperatorImpl::Input::name);
    return found == op.inputs.end() ? nullptr : &*found;
  };
  for (const auto& declared : op.prototype.inputs) {
    if (declared.arity != Arity::dynamic) {
      const auto* input = find(declared.name);
      if (input != nullptr || op.prototype.of_package) add(declared.name, input);
      continue;
    }
    for (size_t i = 0;; ++i) {
      const std::string name = declared.name + std::to_string(i);
      const auto* input = find(name);
      if (input == nullptr) break;
      add(name, input);
    }
  }
  for (const auto& input : op.inputs) {
    if (!added.contains(input.name)) add(input.name, &input);
  }
  for (const auto& control : op.controls) node.inputs.push_back(control->name + ":-1");
}

}  // namespace

Operators operators_of(const Operators& inputs, const std::vector<OutputOfOperator>& outputs) {
  Operators from = inputs;
  for (const auto& output : outputs) from.push_back(output.op);
  return connected(std::move(from));
}

Model model_of(const std::string& name, const Operators& inputs, const std::vector<OutputOfOperator>& outputs) {
  Model model;
  model.name = name;
  for (const auto& op : operators_of(inputs, outputs)) {
    ModelNode node;
    node.name = op->name;
    node.type = op->prototype.type;
    node.attributes = op->attributes;
    add_inputs(*op, node);
    node.output_descriptions = op->output_descriptions;
    // A RefData is a variable of the program: what assigns to it writes to its memory.
    const auto is_reference = [](const auto& input) {
      return input.source != nullptr && input.source->prototype.type == "RefData";
    };
    if (node.type == "Assign" && !op->inputs.empty() && is_reference(op->inputs.front())) {
      node.attributes.insert_or_assign("_writes_through", true);
    }
    model.nodes.push_back(std::move(node));
  }
  ModelNode net_output;
  net_output.name = net_output.type = "NetOutput";
  for (const auto& output : outputs) {
    net_output.inputs.push_back(edge(output));
    const auto& described = output.op->output_descriptions;
    const size_t place = place_of_output(*output.op, output.output);
    net_output.input_descriptions.push_back(place < described.size() ? described[place] : TensorDescription{});
  }
  model.nodes.push_back(std::move(net_output));
  return model;
}

}  // namespace cann_cpu::graph
