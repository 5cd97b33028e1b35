// SPDX-License-Identifier: Apache-2.0
// Synchronization of a core's pipes without a queue.
#pragma once

#include "kernel_operator.h"

namespace opp {

// The second pipe of the event continues when the first has reached this point.
template <AscendC::HardEvent event>
__aicore__ inline void WaitFor() {
  const auto id = static_cast<event_t>(GetTPipePtr()->FetchEventID(event));
  AscendC::SetFlag<event>(id);
  AscendC::WaitFlag<event>(id);
}

}  // namespace opp
