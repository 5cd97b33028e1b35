// SPDX-License-Identifier: Apache-2.0
// The file that aclInit is given: {"defaultDevice": {"default_device": "0"}}. It may be empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cann_cpu {

struct Configuration {
  std::optional<int32_t> default_device;  // of threads that have set none
  bool shares_messages = false;           // "err_msg_mode" of 1: a thread is given the messages of others
};

// Throws Failure, also where the file asks for what is not there, such as a dump.
Configuration read_configuration(const std::string& text);

}  // namespace cann_cpu
