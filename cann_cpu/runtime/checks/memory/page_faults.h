// SPDX-License-Identifier: Apache-2.0
// Handles accesses to inaccessible pages: tasks and the runtime's own copies get access, others are reported.
#pragma once

namespace cann_cpu::memory {

// Again each time that a buffer is made: others may have put their handler in its place since (faulthandler.enable()).
void handle_page_faults();

}  // namespace cann_cpu::memory
