// SPDX-License-Identifier: Apache-2.0
// The options with which a program loads and launches kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "acl/acl_rt.h"
#include "ascendc/stream_launch.h"

namespace cann_cpu {

// Each throws Failure that names an attribute which is unknown, or asks for what is not there.

void check_load_options(const aclrtBinaryLoadOptions* options);

// How many microseconds the kernel may take, if the launch says it; 0 is without end.
std::optional<uint64_t> timeout_of(const aclrtLaunchKernelCfg* config);

// ascendc/stream_launch.h's, with that time instead of aclrtSetOpExecuteTimeOut's.
uint32_t launch_kernel(const KernelLaunch& launch, std::optional<uint64_t> timeout, std::function<void()> body);

}  // namespace cann_cpu
