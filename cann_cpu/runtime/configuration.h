// SPDX-License-Identifier: Apache-2.0
// The file that aclInit is given: {"defaultDevice": {"default_device": "0"}}. It may be empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cann_cpu {

// The device of threads that have set none, if the file names one. Throws Failure, also where the file asks for what is
// not there, such as a dump.
std::optional<int32_t> default_device_of(const std::string& configuration);

}  // namespace cann_cpu
