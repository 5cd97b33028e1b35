// SPDX-License-Identifier: Apache-2.0
// Where libhccl, once it is loaded, makes its communicators known to the calls of operators.
#include "cann_cpu/kernel_communicator.h"

#include <atomic>
#include <stdexcept>

namespace cann_cpu {
namespace {
std::atomic<FindKernelCommunicator> provided = nullptr;
}

std::shared_ptr<KernelCommunicator> kernel_communicator(const std::string& group) {
  const FindKernelCommunicator find = provided;
  if (find == nullptr) {
    throw std::runtime_error("the process has no communicator named '" + group +
                             "': libhccl is not loaded; make the process group first");
  }
  return find(group);
}

void provide_kernel_communicators(FindKernelCommunicator find) { provided = find; }

}  // namespace cann_cpu
