// SPDX-License-Identifier: Apache-2.0
// The prototype of an operator, as REG_OP declares it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "attribute.h"

namespace ops {
struct Definition;
struct ParamDefinition;
}  // namespace ops

namespace cann_cpu::graph {

enum class Arity { required, optional, dynamic };

struct PrototypeTensor {
  std::string name;
  Arity arity = Arity::required;
  const ops::ParamDefinition* read = nullptr;  // an input's in the OpDef, where it has ValueDepend
};

struct PrototypeAttribute {
  std::string name;
  std::string type;  // VT_INT, VT_LIST_FLOAT, ...
  bool required = false;
  Attribute default_value;
};

// An operator's inputs, attributes and outputs in IR order.
struct Prototype {
  std::string type;
  std::vector<PrototypeTensor> inputs;
  std::vector<PrototypeAttribute> attributes;
  std::vector<PrototypeTensor> outputs;
  std::shared_ptr<const ops::Definition> definition;  // the OpDef, where the package's library has one
  bool of_package = false;  // one of the program itself does not take the place of a built-in node type

  bool has_input(const std::string& name) const {
    return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.name == name; });
  }
};

}  // namespace cann_cpu::graph
