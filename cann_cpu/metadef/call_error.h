// SPDX-License-Identifier: Apache-2.0
// Errors of phase one of a call of an operator.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace cann_cpu {

// What is wrong with a call, and with which of CANN's codes phase one returns it.
struct CallError : std::runtime_error {
  CallError(int32_t code, const std::string& what) : std::runtime_error(what), code(code) {}
  int32_t code;
};
constexpr int32_t kInferShapeError = 561001, kTilingError = 561002, kFindKernelError = 561003,
                  kPackageNotFound = 561107;

}  // namespace cann_cpu
