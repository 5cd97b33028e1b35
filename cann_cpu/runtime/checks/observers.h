// SPDX-License-Identifier: Apache-2.0
// The checks, as the runtime sees them. They are made when the library is loaded, and used only while they are on.
#pragma once

#include "runtime/memory.h"
#include "runtime/observer.h"

namespace cann_cpu {

// Calls fail as CANN_CPU_CHECK=fault:FUNCTION[@FILE:LINE][:n[:code]] says. What happens goes into the file that
// CANN_CPU_FAULT_LOG names, a line each: which call failed; where the program calls which function, if none is to fail;
// and what the program has not given back in the end.
extern Observer& faults;

// Counts a program's operations on the device by the line of Python that requests them. A measurement: its table comes
// at the end, and no exit code changes.
extern Observer& costs;

// Two streams, or a stream and the host, use the same bytes, one writes, and nothing orders them. The check looks only
// at the host's calls of the runtime, in their order. The order in which tasks happened to run makes no difference.
extern Observer& races;

// Finds uses of device memory that is out of bounds, freed or uninitialized. A task's declared accesses are checked
// when it runs. Its other accesses are found by inaccessible pages and by poison (memory/guarded.h).
extern Observer& memory_uses;
extern DeviceAllocator& guarded_memory;

// The tasks of all streams in an order drawn from a seed. Streams do not run by themselves. One task runs at a time,
// and the next stream is drawn at random: when the host waits, and sometimes when it launches or queries. So the seed
// and the host's calls of the runtime determine the order, and a seed reproduces it. CANN_CPU_SEED is the seed; 0 is
// the order of the launches.
extern Observer& schedules;
Scheduler& drawn_scheduler();
// Whether CANN_CPU_DIGESTS names a file: it gets a line for every task that ends, with a digest of what it has written.
bool are_digests_kept();

}  // namespace cann_cpu
