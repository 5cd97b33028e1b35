// SPDX-License-Identifier: Apache-2.0
// The reports of the check `memory`.
#pragma once

#include "buffers.h"

namespace cann_cpu::memory {

constexpr const char* kOutOfBounds = "out of bounds";
constexpr const char* kBoundsAdvice =
    "The shape, the strides or the indices that the task was given reach past the memory that was allocated.";

std::string describe(const Buffer& buffer);
// "4 bytes, 1 past the buffer's last"
std::string beside(const Buffer& buffer, uintptr_t first, uintptr_t last);

void report_finding(const char* fault, const std::string& what, const std::string& buffer, const std::string& task,
                    const std::string& advice);
void report_use_after_free(const Buffer& buffer, const std::string& task);

}  // namespace cann_cpu::memory
