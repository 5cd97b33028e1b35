// SPDX-License-Identifier: Apache-2.0
// The order of the work of streams and the host, which the check `race` keeps.
#pragma once

#include "runtime/stream.h"

namespace cann_cpu::race {

// Threads of the host count as one: what one has waited for, the others know.
constexpr size_t kHost = 0;
inline size_t agent_of(int32_t stream) { return static_cast<size_t>(stream) + 1; }
inline size_t agent_of(const Stream& stream) { return agent_of(stream.id); }

// The agent's time, and whether the next work on `agent` is ordered after the other agent's work up to `time`.
uint64_t time_of(size_t agent);
bool knows(size_t agent, size_t other, uint64_t time);

}  // namespace cann_cpu::race
