// SPDX-License-Identifier: Apache-2.0
// A communicator as kernels have it.
#pragma once

#include "cann_cpu/kernel_communicator.h"
#include "communicator.h"

namespace cann_cpu {

std::shared_ptr<KernelCommunicator> for_kernels(std::shared_ptr<Communicator> communicator);

}  // namespace cann_cpu
