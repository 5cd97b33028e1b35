// SPDX-License-Identifier: Apache-2.0
// A compiled kernel of a package.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ascendc/kernel_entry.h"

namespace cann_cpu {

// What the build of a kernel wrote into its file, line by line: operator, kernel, the dtypes and formats of each
// combination, tiling keys, how many parameters it has.
struct KernelDescription {
  std::string type;  // of the operator
  std::string name;
  std::set<std::vector<int>> combinations;  // of each the dtypes, then the formats
  std::optional<std::set<uint64_t>> keys;   // nothing: any
  size_t parameters;
};

// Nothing if it is no such text.
std::optional<KernelDescription> read_kernel_description(const std::string& text);

struct OperatorKernel : KernelDescription {
  using Call = bool (*)(const AscendC::cpu::Call* call, char* error, size_t error_size);

  std::filesystem::path file;
  Call call;
};

}  // namespace cann_cpu
