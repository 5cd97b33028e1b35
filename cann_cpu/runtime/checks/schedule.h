// SPDX-License-Identifier: Apache-2.0
// The check `schedule`: the tasks of all streams in an order drawn from a seed.
//
// With this check, streams do not run by themselves. One task runs at a time, and the next stream is drawn at random:
// when the host waits, and sometimes when it launches or queries. So the seed and the host's calls of the runtime
// determine the order, and a seed reproduces it. CANN_CPU_SEED is the seed; 0 is the order of the launches.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cann_cpu/accesses.h"
#include "report.h"

namespace cann_cpu {

class Stream;

namespace schedule {

using Condition = std::function<bool()>;
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

inline bool is_on() { return cann_cpu::is_on(Check::kSchedule); }

// Throws Failure where CANN_CPU_SEED is no number.
void require_seed();

// ---- the host

// The stream has got a task. Not to be called with its lock held.
void launched(const Stream& stream);
// The host asks how far the streams have come.
void asked();
// Runs streams until the condition holds, and then maybe for a while longer. The condition must not call the functions
// declared here. Returns false when the deadline came first. A task that waits leaves its turn to others meanwhile.
bool wait(const Condition& condition, const Deadline& deadline);
// The stream has no worker any more.
void ended(const Stream& stream);

// ---- a stream's worker, which calls these for every task that launched() announced

void begin_turn(const Stream& stream);
void end_turn(const Stream& stream, size_t tasks);
// Leaves its turn to others until the condition holds.
void block(const Stream& stream, const Condition& condition);
// Its task waits for others than this process's streams, which run beside it until resume().
void suspend(const Stream& stream);
void resume(const Stream& stream);
// Its task is the program's own function, which may be Python's and need the GIL.
void begin_host_function(const Stream& stream);
void end_host_function(const Stream& stream);

// ---- what tasks write

// A launch. The names and numbers of its tasks distinguish them.
struct Launch {
  uint64_t number;
  std::string where;
};
// Whether CANN_CPU_DIGESTS names a file: it gets a line for every task that ends, with a digest of what it has written.
bool are_digests_kept();
// Takes the GIL: not to be called with a lock held.
Launch launch();
void keep_digest(const Launch& launch, size_t node, const std::string& task, const Accesses& accesses);

}  // namespace schedule
}  // namespace cann_cpu
