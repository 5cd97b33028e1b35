// SPDX-License-Identifier: Apache-2.0
// The list of the rows, which docs/functions.md is generated from.
#include <string>

#include "table.h"

// The linker defines where the section begins and ends.
extern "C" const cann_cpu::detail::Row* const __start_aclnn_rows[];
extern "C" const cann_cpu::detail::Row* const __stop_aclnn_rows[];

// A line for each function: its name, the names of its parameters, its table of dtypes, and the parameters with their
// types, separated by tabs.
extern "C" CANN_EXPORT const char* cann_cpu_functions() {
  static const std::string all = [] {
    std::string lines;
    for (const auto* row = __start_aclnn_rows; row != __stop_aclnn_rows; ++row) {
      lines += std::string((*row)->name) + '\t';
      for (const std::string& name : cann_cpu::parameter_names((*row)->source)) lines += name + ' ';
      lines += std::string("\t") + ((*row)->dtypes != nullptr ? (*row)->dtypes : "") + '\t';
      lines.append("(").append(cann_cpu::parameters_in((*row)->source)).append(")\n");
    }
    return lines;
  }();
  return all.c_str();
}
