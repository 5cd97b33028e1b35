// SPDX-License-Identifier: Apache-2.0
// The reports of tasks to the profiler (docs/profiler.md). Nothing is built or written while no profiler runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "acl/acl_base.h"
#include "cann_cpu/export.h"
#include "cann_cpu/runtime.h"

namespace cann_cpu {

// A tensor of a task.
struct TaskTensor {
  aclDataType dtype;
  aclFormat format;
  std::vector<int64_t> shape;
  bool is_output;
};
using TaskTensors = std::vector<TaskTensor>;

// Whether a profiler runs.
CANN_EXPORT extern std::atomic<bool> profiling;
inline bool is_profiling() { return profiling.load(std::memory_order_relaxed); }
// Whether anybody wants to know the operands of calls that are made now: a profiler, or a graph that is captured and
// may be profiled later.
CANN_EXPORT bool operands_are_wanted();

// launch(), with the task's tensors; null if they are not needed.
CANN_EXPORT aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses,
                            std::shared_ptr<const TaskTensors> operands);

namespace profiler {

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

}  // namespace profiler

// A node of a graph that the calling thread runs as long as it lives: a row within that of the graph's task, whatever
// the node launches in turn.
class CANN_EXPORT ProfiledNode {
 public:
  // Outside of a task of a stream it is no row.
  ProfiledNode(std::string name, std::string type);
  ~ProfiledNode();
  ProfiledNode(const ProfiledNode&) = delete;
  ProfiledNode& operator=(const ProfiledNode&) = delete;
  void set_operands(TaskTensors operands);

 private:
  std::unique_ptr<profiler::Row> row_;
};

}  // namespace cann_cpu
