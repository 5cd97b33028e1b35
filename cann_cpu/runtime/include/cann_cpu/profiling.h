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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cann_cpu
