// SPDX-License-Identifier: Apache-2.0
// What the file of kernels says of them: an ELF file for NPUs, which is not run here, or a library for this CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cann_cpu {

struct KernelInfo {
  std::string name;
  uint64_t entry = 0;  // the number at the end of the name, behind '_'; 0 without one
  // What CANN's compiler has written of it, by the types of rtFunctionGetMetaInfo.
  std::map<uint32_t, std::vector<std::byte>> meta{};
};

bool is_for_npus(const void* data, size_t size);

// The kernels of a file for NPUs: its global functions. The parts of a kernel for both kinds of cores (X_mix_aic and
// X_mix_aiv) are one kernel. Fails if the file is damaged; `file` is its name in the message.
std::vector<KernelInfo> kernels_for_npus(const std::string& file, const void* data, size_t size);

// The kernels of a library that cann_cpu's tools have built. It has a symbol ascendc_cpu_kernel_X for kernel X.
std::vector<KernelInfo> kernels_of_library(const std::string& file, const void* data, size_t size);

}  // namespace cann_cpu
