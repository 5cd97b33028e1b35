// SPDX-License-Identifier: Apache-2.0
// Device memory that other processes may map.
#pragma once

namespace cann_cpu {

// The allocation at the address is about to be given back: ends its export. Its pages are this process's alone again,
// and empty; who has mapped them keeps what they held.
void end_export(void* address);

}  // namespace cann_cpu
