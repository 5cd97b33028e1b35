// SPDX-License-Identifier: Apache-2.0
// The times that kernels and waits for events may take, of the whole process.
#pragma once

#include <atomic>
#include <cstdint>

namespace cann_cpu {

// 0 is without end.
inline std::atomic<uint64_t> kernel_timeout_us{0};
inline std::atomic<uint32_t> event_wait_timeout_s{0};

}  // namespace cann_cpu
