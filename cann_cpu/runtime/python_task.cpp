// SPDX-License-Identifier: Apache-2.0
// Tasks in Python, for cann_cpu/python_task.py: functions of Python's that a stream's worker calls.
#include <deque>

#include "cann_cpu/call.h"
#include "cann_cpu/gil.h"
#include "stream.h"

namespace cann_cpu {
namespace {

// The functions that no task needs any more. Python forgets them at its next launch: who drops a task may hold locks,
// and must not wait for Python's.
class EndedFunctions {
 public:
  void add(uint64_t function) {
    const std::lock_guard lock(mutex_);
    functions_.push_back(function);
  }
  uint64_t take() {
    const std::lock_guard lock(mutex_);
    if (functions_.empty()) return 0;
    const uint64_t function = functions_.front();
    functions_.pop_front();
    return function;
  }

 private:
  std::mutex mutex_;
  std::deque<uint64_t> functions_;
};

EndedFunctions& ended_functions() {
  static auto* const all = new EndedFunctions;
  return *all;
}

// Lives as long as the task, which a captured graph keeps.
struct PythonFunction {
  explicit PythonFunction(uint64_t number) : number(number) {}
  ~PythonFunction() { ended_functions().add(number); }
  PythonFunction(const PythonFunction&) = delete;
  PythonFunction& operator=(const PythonFunction&) = delete;
  const uint64_t number;
};

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

struct cann_cpu_PythonAccess {
  uintptr_t begin;
  size_t bytes;
  bool is_write;
};

// Appends a task that calls run(function) with the GIL. What run returns is an error code: 0, or that of
// cann_cpu_python_task_failed.
extern "C" CANN_EXPORT aclError cann_cpu_launch_python_task(aclrtStream stream, const char* name, uint64_t function,
                                                            aclError (*run)(uint64_t),
                                                            const cann_cpu_PythonAccess* accesses, size_t count) {
  expect_python_tasks();
  Accesses of_task;
  for (uint32_t i = 0; i < count; ++i) {
    of_task.push_back({accesses[i].begin, accesses[i].begin + accesses[i].bytes, accesses[i].is_write, i + 1});
  }
  const auto kept = std::make_shared<const PythonFunction>(function);
  const auto task = [kept, run] {
    const Scope called = scope_of(&Observer::on_host_function, *running_stream(), /*is_kernel=*/true);
    const WithGil calls_python;
    return run(kept->number);
  };
  return launch(stream, name, task, of_task);
}

extern "C" CANN_EXPORT void cann_cpu_expect_python_tasks() { expect_python_tasks(); }

// The number of a function that is not needed any more; 0: there is none.
extern "C" CANN_EXPORT uint64_t cann_cpu_take_ended_python_function() { return ended_functions().take(); }

// Sets the error of the task that the thread runs.
extern "C" CANN_EXPORT aclError cann_cpu_python_task_failed(const char* text) {
  return error(ACL_ERROR_INTERNAL_ERROR, "%s", text);
}
