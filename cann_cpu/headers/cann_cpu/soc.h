// SPDX-License-Identifier: Apache-2.0
// The chips whose numbers operators may ask for, and the model of a kernel's cost has: CANN_CPU_SOC names one of them.
#pragma once

#include <cstdint>

#include "cann_cpu/export.h"

namespace cann_cpu {

struct Soc {
  const char* name;    // "Ascend910B3"
  const char* family;  // "ascend910b", as operators' definitions name it
  uint32_t cube_cores;
  uint32_t vector_cores;
  int64_t l2_bytes;
  uint32_t clock_mhz;
  uint32_t device_memory_gb_per_second;
};

// The chip of this process; for a name that is none of them the default, with a message on stderr.
CANN_EXPORT const Soc& soc();
CANN_EXPORT const Soc* find_soc(const char* name);
// The chip of a name, or, with a message on stderr, another one; who says the name stands in it.
CANN_EXPORT const Soc& soc_named(const char* name, const char* who, const Soc& otherwise);

}  // namespace cann_cpu
