// SPDX-License-Identifier: Apache-2.0
// The file that aclInit is given: {"defaultDevice": {"default_device": "0"}}, and more that does not concern a CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cann_cpu {

// The device of threads that have set none, if the file names one. Throws Failure.
std::optional<int32_t> default_device_of(const std::string& configuration);

}  // namespace cann_cpu
