// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cann_cpu {

// Throws unless CANN_CPU_VERSION is a version of CANN.
void require_readable_version();

}  // namespace cann_cpu
