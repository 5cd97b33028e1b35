// SPDX-License-Identifier: Apache-2.0
// The check `fault`: calls fail as CANN_CPU_CHECK=fault:FUNCTION[@FILE:LINE][:n[:code]] says.
//
// What happens goes into the file that CANN_CPU_FAULT_LOG names, a line each: which call failed; where the program
// calls which function, if none is to fail; and what the program has not given back in the end.
#pragma once

#include "cann_cpu/fault.h"

namespace cann_cpu::fault {

// Throws Failure where the variable cannot be read.
void require_readable();
// Called when the program ends: reports once which objects are still alive.
void end();

}  // namespace cann_cpu::fault
