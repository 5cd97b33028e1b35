// SPDX-License-Identifier: Apache-2.0
// The ranges of memory that the runtime knows: whose they are and how far they reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device.h"

namespace cann_cpu {

enum class Space { kPageable, kPinned, kDevice };

struct Range {
  Space space = Space::kPageable;
  int32_t device = -1;
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

inline uintptr_t to_integer(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// The range that holds the address; adjoining mappings of one device count as one. Pageable: unknown to the runtime.
Range find_range(const void* address);

// All ranges of device memory; adjoining mappings of one device count as one.
std::vector<Range> device_ranges();

// Fails unless [address, address + size) lies within one range of the space; pageable and pinned are both host memory.
Range check_range(const char* name, const void* address, size_t size, bool on_device);

// Takes bytes from the device's account, failing with CANN's out-of-memory code past the limit, and gives them back.
void charge(Device& device, size_t size);
void refund(Device& device, size_t size);

// Memory mapped at addresses that aclrtReserveMemAddress gave.
void add_mapping(void* address, size_t size, int32_t device);
void remove_mapping(void* address);

// Whether one of the devices may copy to the other: aclrtDeviceEnablePeerAccess.
bool have_peer_access(int32_t device, int32_t other);

// Frees what is left of a device's allocations from before a reset, as aclrtFree does.
void release_memory(Device& device, uint64_t resets);

}  // namespace cann_cpu
