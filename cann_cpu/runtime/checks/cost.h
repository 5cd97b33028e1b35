// SPDX-License-Identifier: Apache-2.0
// The check `cost`: counts a program's operations on the device by the line of Python that requests them.
//
// A measurement: its table comes at the end, and no exit code changes. The functions do nothing while the check is off.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "runtime/memory.h"

namespace cann_cpu::cost {

// A stream gets work. These two take the GIL while the check is on: not to be called with a lock held.
void launched(const char* name);
void copied(size_t bytes, Space to, Space from);
// Memory of the device, or pinned memory, from the driver: PyTorch's allocators ask for it when they have none left.
void allocated(size_t bytes);
void freed(size_t bytes);

// The host waits for as long as one of these lives: for a stream, for an event, or for its own copy, which has been
// counted. PyTorch's allocators wait with their locks held, as they allocate.
class Wait {
 public:
  enum class For { kDevice, kCopy };
  explicit Wait(For what = For::kDevice);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  const For what_;
  const std::string* const place_;  // null while the check is off
  const std::chrono::steady_clock::time_point begin_;
};

}  // namespace cann_cpu::cost
