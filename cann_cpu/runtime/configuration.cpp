// SPDX-License-Identifier: Apache-2.0
#include "configuration.h"

#include "call.h"
#include "json.h"

namespace cann_cpu {

std::optional<int32_t> default_device_of(const std::string& configuration) {
  try {
    const Json json = parse_json(configuration);
    const Json* const section = json.find("defaultDevice");
    const Json* const device = section == nullptr ? nullptr : section->find("default_device");
    if (device == nullptr) return std::nullopt;
    const std::optional<int32_t> index = device->index();
    if (!index) throw JsonError("default_device is not the number of a device");
    return index;
  } catch (const JsonError& error) {
    fail(ACL_ERROR_PARSE_FILE, "%s", error.what());
  }
}

}  // namespace cann_cpu
