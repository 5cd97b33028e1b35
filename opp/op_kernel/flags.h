// SPDX-License-Identifier: Apache-2.0
// What orders the pipes of a core where no queue does.
#pragma once

#include "kernel_operator.h"

namespace opp {

// The second pipe of the event goes on when the first has come so far.
template <AscendC::HardEvent event>
__aicore__ inline void WaitFor() {
  const auto id = static_cast<event_t>(GetTPipePtr()->FetchEventID(event));
  AscendC::SetFlag<event>(id);
  AscendC::WaitFlag<event>(id);
}

}  // namespace opp
