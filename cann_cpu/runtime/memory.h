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

// Device memory of the calling thread's device; the caller is an address of code, null for a tensor's.
void malloc_device(void** address, size_t size, const void* caller);
// Takes device memory out of the map and off its device's account, and returns how many bytes it has.
size_t forget_device_memory(void* address);

// Takes bytes from the device's account, failing with CANN's out-of-memory code past the limit, and gives them back.
void charge(Device& device, size_t size);
void refund(Device& device, size_t size);

// Memory mapped at addresses that aclrtReserveMemAddress gave.
void add_mapping(void* address, size_t size, int32_t device);
void remove_mapping(void* address);

// Frees what is left of a device's allocations from before a reset, as aclrtFree does.
void release_memory(Device& device, uint64_t resets);

// The allocation at the address is about to be given back: ends its export to other processes (ipc_memory.cpp). Its
// pages are this process's alone again, and empty; who has mapped them keeps what they held.
void end_export(void* address);

// Gives device memory in the runtime's place. Null for lack of memory, and for a tensor's caller.
class DeviceAllocator {
 public:
  virtual void* allocate(size_t size, int32_t device, const void* caller) = 0;
  // Reports why the address cannot be freed, if it cannot.
  virtual void check_free(const void* address) = 0;
  virtual void release(void* address) = 0;
  // What is left when its device ends.
  virtual void release_left(const std::vector<void*>& addresses) = 0;
  // A copy or a fill asked for bytes that its buffer does not have.
  virtual void reject_range(const char* name, uintptr_t address, size_t size) = 0;

 protected:
  ~DeviceAllocator() = default;
};

// Set while the library is loaded; null: the runtime's own.
inline DeviceAllocator* device_allocator = nullptr;

}  // namespace cann_cpu
