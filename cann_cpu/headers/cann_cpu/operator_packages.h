// SPDX-License-Identifier: Apache-2.0
// Where operator packages are installed: the search order that CANN and torch_npu use.
#pragma once

#include <filesystem>
#include <vector>

#include "cann_cpu/export.h"

namespace cann_cpu {

// The entries of ASCEND_CUSTOM_OPP_PATH, then ASCEND_OPP_PATH/vendors/<v> in the order of load_priority in config.ini.
CANN_EXPORT std::vector<std::filesystem::path> operator_packages();

}  // namespace cann_cpu
