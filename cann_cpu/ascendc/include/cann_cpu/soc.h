// SPDX-License-Identifier: Apache-2.0
// The chips: what operators may ask for, and what kernels are run and checked as. CANN_CPU_SOC names one of them.
#pragma once

#include <cstdint>

#include "cann_cpu/architecture.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

struct Soc {
  const char* name;    // "Ascend910B3"
  const char* family;  // "ascend910b", as operators' definitions name it
  uint32_t npu_arch;
  uint32_t cube_cores;
  uint32_t vector_cores;           // those of AI cores; as many where a core has both units
  uint32_t separate_vector_cores;  // beside the AI cores
  int64_t l2_bytes;
  uint32_t clock_mhz;
  uint32_t l2_rate, device_memory_rate;  // bytes in a cycle, of a core
  uint32_t device_memory_gb_per_second;  // 0: the model of costs does not know the chip

  const Architecture& architecture() const { return architecture_of(npu_arch); }
};

// The chip of this process: CANN_CPU_SOC names it. Without that variable it is the default chip, or, if the installed
// operator packages have no kernels for the default, the first chip that all of them support. An unknown name gives the
// default and a message on stderr.
CANN_EXPORT const Soc& soc();
// Why soc() chose this chip.
CANN_EXPORT const char* soc_reason();
CANN_EXPORT const Soc* find_soc(const char* name);
// The chip with this name. An unknown name gives `otherwise` and a message on stderr that begins with `who`.
CANN_EXPORT const Soc& soc_named(const char* name, const char* who, const Soc& otherwise);
// The first chip of an architecture.
CANN_EXPORT const Soc& soc_of(uint32_t npu_arch);
// The first chip of a family; null if there is none.
CANN_EXPORT const Soc* soc_of_family(const char* family);
// Says that the program has kernels of an architecture, before it asks for the chip: they choose it as packages do.
CANN_EXPORT bool has_kernels_for(uint32_t npu_arch);

}  // namespace cann_cpu
