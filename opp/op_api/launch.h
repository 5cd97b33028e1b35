// SPDX-License-Identifier: Apache-2.0
// What aclnn functions need to launch a kernel on the memory of tensors.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <vector>

#include "ascendc/launch.h"

namespace opp {

// Kernels take what they only read without const, too.
inline auto* gm_address(const at::Tensor& tensor) {
  return static_cast<GM_ADDR>(const_cast<void*>(tensor.const_data_ptr()));
}
inline auto* gm_address(const std::optional<at::Tensor>& tensor) { return tensor ? gm_address(*tensor) : nullptr; }

// While it lives, the bounds of these tensors' memory are known to the launches of this thread that are checked.
class TensorMemory {
 public:
  struct Named {
    const char* name;
    std::optional<at::Tensor> tensor;
  };
  TensorMemory(std::initializer_list<Named> tensors) {
    if (!AscendC::cpu::checks_by_default()) return;
    for (const auto& [name, tensor] : tensors) {
      buffers_.push_back({gm_address(tensor), tensor ? bytes_of(*tensor) : 0, name});
    }
    known_.emplace(buffers_.data(), buffers_.size());
  }

 private:
  static size_t bytes_of(const at::Tensor& tensor) {
    return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  }

  std::vector<AscendC::cpu::DeviceBuffer> buffers_;
  std::optional<AscendC::cpu::KnownMemory> known_;
};

// How many blocks run at a time.
inline uint32_t cores() { return static_cast<uint32_t>(at::get_num_threads()); }

}  // namespace opp
