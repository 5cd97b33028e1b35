// SPDX-License-Identifier: Apache-2.0
// The check `race`: two streams, or a stream and the host, use the same bytes, one writes, and nothing orders them.
//
// The check looks only at the host's calls of the runtime, in their order. The order in which tasks happened to run
// makes no difference. The functions do nothing while the check is off.
#pragma once

#include "cann_cpu/accesses.h"
#include "runtime/event.h"
#include "shadow.h"

namespace cann_cpu::race {

// Threads of the host count as one: what one has waited for, the others know.
constexpr size_t kHost = 0;
inline size_t agent_of(const Stream& stream) { return static_cast<size_t>(stream.id) + 1; }

// A use of memory by a task, as a capture records it.
struct Recorded {
  Accesses accesses;
  std::string task;
  std::string where;
};

// Where the caller is, while the check is on. Takes the GIL: not to be called with a lock held.
std::string where();

// The stream gets a task. Takes the GIL, as where() does.
void task(const Stream& stream, const char* name, const Accesses& accesses);
// The stream replays a captured task, asked for at `where`.
void replayed(const Stream& stream, const Recorded& recorded, const std::string& where);
// The same, to a stream that is captured: it knows what `progress` says, and lies at its own number there.
void captured_task(Shadow& graph, const Stream& stream, const Progress& progress, const Recorded& recorded);
// The host uses memory now.
void host(const char* function, const Accesses& accesses);

// The agent's time, and whether the next work on `agent` is ordered after the other agent's work up to `time`.
uint64_t time_of(size_t agent);
bool knows(size_t agent, size_t other, uint64_t time);

// The event marks what the stream has been given.
void recorded(const Stream& stream, Recording& recording);
void stream_waits(const Stream& stream, const Recording& recording);
void host_waited(const Stream& stream);
void host_waited(const Recording& recording);

// The memory is freed: its next use is unrelated to its earlier ones.
void freed(const void* address, size_t size);

}  // namespace cann_cpu::race
