// SPDX-License-Identifier: Apache-2.0
// Functions of the runtime's memory for the other libraries of cann_cpu.
#pragma once

#include <cstddef>

#include "acl/acl_base.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// Fails with error() unless `size` bytes from the address on are device memory that the runtime has given out.
CANN_EXPORT aclError require_device_memory(const char* name, const void* address, size_t size);

// The allocation that these bytes are in. Fails as require_device_memory().
struct DeviceMemory {
  void* begin;
  size_t size;
};
CANN_EXPORT aclError find_device_memory(const char* name, const void* address, size_t size, DeviceMemory& allocation);

}  // namespace cann_cpu
