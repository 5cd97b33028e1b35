// SPDX-License-Identifier: Apache-2.0
// A kernel of a library, as other languages and the runtime call it.
#pragma once

#include "ascendc/launch.h"
#include "ascendc/profile.h"

namespace AscendC::cpu {

struct Call {
  const void* const* arguments;  // a pointer to each, in the order of the kernel's parameters
  const DeviceBuffer* buffers;   // what it may touch; null: what the calling thread knows
  size_t buffer_count;
  size_t* written;  // for each buffer, how many of its bytes the kernel wrote, if it is checked
  uint64_t tiling_key;
  uint32_t blocks;
  Checks checks;
  const Profile* profile = nullptr;  // where a checked launch says what it costs
  Contexts contexts = {};
};

// What ascendc_cpu_kernel_X() gives of the kernel X.
struct KernelEntry {
  const char* name;
  const char* parameters;   // their names, with commas between them
  const char* letters;      // of the parameters
  const uint32_t* sizes;    // in bytes
  const uint32_t* offsets;  // where they stand as members of a struct
  bool (*call)(const char* name, const Call& call, char* error, size_t error_size);
};

}  // namespace AscendC::cpu
