// SPDX-License-Identifier: Apache-2.0
// Permission for peers to read this process's memory, where the kernel's Yama gives it to ancestors alone.
#pragma once

#include <memory>

namespace cann_cpu {

// As long as the result lives, and no longer. Yama takes one process, and its descendants: of several peers it is their
// nearest common ancestor, the launcher; where that is the first process of all, only the peers before keep theirs.
std::shared_ptr<void> permit_reading_by(int process);

}  // namespace cann_cpu
