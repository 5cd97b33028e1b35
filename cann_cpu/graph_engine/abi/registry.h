// SPDX-License-Identifier: Apache-2.0
// Operator prototypes: those of REG_OP libraries in operator packages, by operator type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph_engine/model/attribute.h"

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

  bool has_input(const std::string& name) const;
};

// The prototype of an operator type, or nullptr; the packages' libraries are loaded at the first call.
const Prototype* find_prototype(const std::string& type);

// What went wrong while the packages' libraries were loaded; empty when all is well.
const std::string& package_errors();

}  // namespace cann_cpu::graph
