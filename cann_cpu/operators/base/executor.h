// SPDX-License-Identifier: Apache-2.0
// What an executor holds.
#pragma once

#include <memory>
#include <vector>

#include "cann_cpu/executor.h"

struct aclOpExecutor {
  std::shared_ptr<const cann_cpu::Call> call;
  std::vector<void*> addresses;
  bool repeatable = false;
};
