// SPDX-License-Identifier: Apache-2.0
// The differences between the versions of torch_npu that an extension is loaded with.
#pragma once

#include <ATen/Context.h>
#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <op_plugin/include/npu_cpp_extension.h>

#include <cstdint>
#include <utility>

// Weak, as torch_npu 2.10.0.post4 has neither.
namespace c10_npu {
__attribute__((weak)) uint32_t GetDeterministicLevel();
}
namespace at_npu::native {
__attribute__((weak)) void ApplyDeterministicLevel(int64_t level, bool deterministic, bool isOpapi);
}

namespace custom_pypto {

// Passes to CANN the setting that torch_npu passes before its own operators: whether and how far to be deterministic.
inline std::pair<bool, uint32_t> apply_determinism() {
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  if (&at_npu::native::ApplyDeterministicLevel == nullptr) {
    const aclError status = aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, deterministic);
    TORCH_CHECK(status == ACL_SUCCESS, "aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC) failed with error ", status);
    return {deterministic, 0};
  }
  const uint32_t level = c10_npu::GetDeterministicLevel();
  at_npu::native::ApplyDeterministicLevel(level, deterministic, /*isOpapi=*/true);
  return {deterministic, level};
}

}  // namespace custom_pypto
