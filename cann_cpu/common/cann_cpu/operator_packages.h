// SPDX-License-Identifier: Apache-2.0
// The places of operator packages, in the search order of CANN and torch_npu.
#pragma once

#include <filesystem>
#include <vector>

namespace cann_cpu {

// In order of priority: the entries of ASCEND_CUSTOM_OPP_PATH that name a package's library, PACKAGE/op_api/lib, then
// its other entries, then ASCEND_OPP_PATH/vendors/<v> in the order of load_priority in config.ini.
std::vector<std::filesystem::path> operator_packages();

}  // namespace cann_cpu
