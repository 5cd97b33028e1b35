// SPDX-License-Identifier: Apache-2.0
// The outputs that are generated from prototypes.
#pragma once

#include <string>
#include <vector>

#include "prototype.h"

namespace ge::codegen {

// The Python GE API: a module with a function for each prototype.
std::string python_module(const std::vector<Prototype>& prototypes);

}  // namespace ge::codegen
