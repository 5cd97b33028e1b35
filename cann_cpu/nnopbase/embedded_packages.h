// SPDX-License-Identifier: Apache-2.0
// Operator packages whose files are embedded in the libraries of this process.
#pragma once

#include <filesystem>
#include <string>

namespace cann_cpu {

// The folder of the one that has the operator's kernel; empty if none has. Throws CallError if two have.
std::filesystem::path embedded_package_of(const std::string& type);

}  // namespace cann_cpu
