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

// Graphs that are captured now may be profiled later.
void begin_capture();
void end_capture();

// A call of the runtime by the host, as long as it lives.
class CANN_EXPORT Call {
 public:
  explicit Call(const char* function) {
    if (is_profiling()) begin(function);
  }
  ~Call() {
    if (begin_ != 0) end();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  void begin(const char* function);
  void end();

  const char* function_ = nullptr;
  uint64_t begin_ = 0;  // 0: not recorded
  uint64_t outer_ = 0;
};

// A row of a stream, as long as it lives in the thread that works for the stream. It is a kernel's unless other rows
// lie within it.
class Row {
 public:
  struct Of {
    std::string name;
    std::string type;  // empty: by the name
    std::shared_ptr<const TaskTensors> operands;
    int32_t device = -1;
    int32_t stream = -1;
    uint64_t call = 0;      // of the host, that asked for it
    bool is_whole = false;  // what it launches in turn has no rows
  };
  explicit Row(Of of);
  // Within the row of this thread, if there is one that is to have rows within.
  static std::optional<Of> within(std::string name, std::string type, std::shared_ptr<const TaskTensors> operands);
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Of of;

 private:
  const uint64_t run_;  // of the profiler, that it belongs to; 0: of none
  const uint64_t begin_;
  Row* const outer_;
  bool has_inner_ = false;
};

// The call that the host makes now, for rows that it asks for.
uint64_t current_call();

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
