// SPDX-License-Identifier: Apache-2.0
// A graph as torchair writes it down: the messages of ge_ir.proto that an execution needs.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "attribute.h"

namespace cann_cpu::graph {

// What is wrong with a graph, a node or a call; its text reaches Python.
struct GraphError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Attributes = std::map<std::string, Attribute>;

struct TensorDescription {
  std::string name;
  ge::DataType dtype = ge::DT_UNDEFINED;
  bool has_shape = false;
  std::vector<int64_t> shape;  // -1: known at run time only
  std::string device;          // "CPU", "NPU" or empty
  std::string fx_tensor;       // the FX value that it stands for, if torchair has named it
};

struct ModelNode {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;  // "node:output", "node:-1" for a control edge, "" for an absent optional input
  Attributes attributes;
  std::vector<TensorDescription> input_descriptions;
  std::vector<TensorDescription> output_descriptions;
};

struct Model {
  std::string name;
  std::vector<ModelNode> nodes;
  Attributes attributes;
};

// "node 'Add_1' of type Add (FX value 'add.0')"
std::string describe(const ModelNode& node);

// Reads a serialized ge.proto.ModelDef. Throws GraphError when the bytes are no model.
Model read_model(const void* data, size_t size);

}  // namespace cann_cpu::graph
