// SPDX-License-Identifier: Apache-2.0
// Records the runtime's calls and the tasks of its streams while a profiler runs. The records are kept in memory, and
// written at the end of a run into the folder that `msprof` exports.
#pragma once

#include <filesystem>
#include <optional>
#include <set>

#include "cann_cpu/profiling.h"

namespace cann_cpu::profiler {

struct Selection {
  std::set<int32_t> devices;
  bool calls = false;     // of the runtime
  bool operands = false;  // shapes and dtypes of tasks
};

// Records from now on. False when it does already.
CANN_EXPORT bool start(Selection selection);
// Ends that, and writes it; `level` are the data types that were asked for, for the exporter. False when nothing ran.
bool stop(const std::filesystem::path& folder, uint64_t data_types);

// Ends that, and drops it.
CANN_EXPORT void end();

// ---- for tools that read while it records

struct CallRecord {
  uint64_t id;
  std::string function;
  pid_t thread;
  uint64_t begin;
  uint64_t end;
  int external_kind;  // of the tool, as it was set then
  uint64_t external;
};
struct RowRecord {
  Row::Of of;
  uint64_t begin;
  uint64_t end;
  bool is_kernel;
};
struct Records {
  std::vector<CallRecord> calls;
  std::vector<RowRecord> rows;
};
// What was recorded since the last time, in nanoseconds since 1970.
CANN_EXPORT Records take();
// What this thread calls from now on belongs to.
CANN_EXPORT void set_external(int kind, uint64_t id);

}  // namespace cann_cpu::profiler
