// SPDX-License-Identifier: Apache-2.0
// The memory of the device that a launch may touch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ascendc/launch.h"

namespace AscendC::cpu {

// What the thread knows of it, by the KnownMemory that lives.
const KnownMemory* known_memory();

// What GmAlloc has given and what the launching thread knows, as it stands when the launch begins.
class DeviceMemory {
 public:
  DeviceMemory();

  // The buffer that holds an address. Among several, it prefers one that also holds these bytes. nullptr if there is
  // none.
  const DeviceBuffer* find(const void* address, const void* begin, size_t bytes) const;

  // What messages call an address: the buffer that it lies in.
  const DeviceBuffer* find(uintptr_t address) const;

  // The lines of the data cache that bytes lie in, of 64 bytes from the start of their buffer on: where they begin and
  // end.
  static constexpr uintptr_t kCacheLine = 64;
  std::pair<uintptr_t, uintptr_t> lines(uintptr_t begin, uintptr_t end) const;

  // Says to the launching thread's KnownMemory how much of its buffers was written, if it asks, by the ranges that
  // were.
  void count_written(std::vector<std::pair<uintptr_t, uintptr_t>> writes) const;

  // What there is instead of memory at the address null: the arguments that are None.
  std::string nothing() const;

  // Whether memory outside all buffers is rejected. It is not if the kernel's buffers were not specified.
  bool complete() const { return complete_; }

 private:
  std::vector<DeviceBuffer> buffers_;
  bool complete_;
};

}  // namespace AscendC::cpu
