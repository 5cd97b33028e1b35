// SPDX-License-Identifier: Apache-2.0
// Launches of kernels as tasks of the runtime's streams, without ACL's headers: a file of kernels may have torch_npu's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ascendc/launch.h"

namespace cann_cpu {

struct AddressArgument {
  const void* address;
  uint32_t position;  // among all arguments
};

struct KernelLaunch {
  const char* kernel;
  uint32_t blocks;
  void* stream = nullptr;            // null: the current context's default stream
  const char* parameters = nullptr;  // their names, with commas between them, if they are known
  const AddressArgument* addresses = nullptr;
  size_t address_count = 0;
  uint64_t tiling_key = 0;
};

// Appends a launch to the stream: `body` runs the kernel. A checked kernel may access the device memory that is
// allocated when it runs. Messages name an allocation by the arguments that lie in it. Returns the code of an error in
// the launch itself, and also prints the error to stderr, because few callers look at the code.
ASCENDC_CPU_EXPORT uint32_t launch_kernel(const KernelLaunch& launch, std::function<void()> body);

// Reports that a launch was not made, and returns the code.
ASCENDC_CPU_EXPORT uint32_t cannot_launch(const char* kernel, const char* reason);

}  // namespace cann_cpu
