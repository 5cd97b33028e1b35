// SPDX-License-Identifier: Apache-2.0
// The number of cores that operators may use: the chip's, or the limit of aclrtSetDeviceResLimit and similar functions.
#pragma once

#include <cstdint>
#include <optional>

#include "cann_cpu/export.h"

namespace cann_cpu {

struct Cores {
  uint32_t cube;
  uint32_t vector;
};

CANN_EXPORT Cores cores_of_chip() noexcept;
// In calls of this thread.
CANN_EXPORT Cores cores_of_thread() noexcept;

// Limits them for as long as it lives.
class CANN_EXPORT CoresOfThread {
 public:
  explicit CoresOfThread(std::optional<Cores> cores);
  ~CoresOfThread();
  CoresOfThread(const CoresOfThread&) = delete;
  CoresOfThread& operator=(const CoresOfThread&) = delete;

 private:
  std::optional<Cores> before_;
};

}  // namespace cann_cpu
