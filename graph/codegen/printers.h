// SPDX-License-Identifier: Apache-2.0
// What is generated of prototypes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "prototype.h"

namespace ge::codegen {

// The Python GE API: a module with a function for each prototype.
std::string python_module(const std::vector<Prototype>& prototypes);

// The declarations of the aclnn functions: {name of the header: its text}. What an aclnn function cannot take is added
// to the prototypes' errors.
std::map<std::string, std::string> aclnn_headers(std::vector<Prototype>& prototypes);

}  // namespace ge::codegen
