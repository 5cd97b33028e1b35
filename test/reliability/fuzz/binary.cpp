// SPDX-License-Identifier: Apache-2.0
// A file of kernels for NPUs, or the symbols of a library of kernels.
#include "cann_cpu/call.h"
#include "reader.h"
#include "runtime/device_binary.h"

using namespace cann_cpu;

bool is_valid(const std::string& contents) {
  if (!is_for_npus(contents.data(), contents.size())) return false;
  try {
    kernels_of_library("file", contents.data(), contents.size());
    kernels_for_npus("file", contents.data(), contents.size());
    return true;
  } catch (const Failure&) {
    return false;
  }
}
