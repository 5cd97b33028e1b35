// SPDX-License-Identifier: Apache-2.0
// Operator prototypes: those of REG_OP libraries in operator packages, by operator type.
#pragma once

#include <string>

#include "graph_engine/model/prototype.h"

namespace cann_cpu::graph {

// The prototype of an operator type, or nullptr; the packages' libraries are loaded at the first call.
const Prototype* find_prototype(const std::string& type);

// What went wrong while the packages' libraries were loaded; empty when all is well.
const std::string& package_errors();

// What the REG_OP of a library that is being loaded registers.
void add_prototype(const std::string& type, Prototype prototype);

}  // namespace cann_cpu::graph
