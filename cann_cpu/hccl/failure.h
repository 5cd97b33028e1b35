// SPDX-License-Identifier: Apache-2.0
// The exception that ends a call or a collective: HCCL's code and the reason in words.
#pragma once

#include <stdexcept>
#include <string>

#include "hccl/hccl_types.h"

namespace cann_cpu {

struct CollectiveFailure : std::runtime_error {
  CollectiveFailure(HcclResult code, const std::string& reason) : std::runtime_error(reason), code(code) {}
  const HcclResult code;
};

// The same, as another rank found it.
struct RemoteFailure : CollectiveFailure {
  using CollectiveFailure::CollectiveFailure;
};

}  // namespace cann_cpu
