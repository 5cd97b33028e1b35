// What aclnn functions need to launch a kernel on the memory of tensors.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "ascendc/launch.h"

namespace opp {

// Kernels take what they only read without const, too.
inline auto* gm_address(const at::Tensor& tensor) {
  return static_cast<GM_ADDR>(const_cast<void*>(tensor.const_data_ptr()));
}
inline auto* gm_address(const std::optional<at::Tensor>& tensor) { return tensor ? gm_address(*tensor) : nullptr; }

// How many blocks run at a time.
inline uint32_t cores() { return static_cast<uint32_t>(at::get_num_threads()); }

}  // namespace opp
