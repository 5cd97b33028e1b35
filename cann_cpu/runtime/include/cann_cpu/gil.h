// SPDX-License-Identifier: Apache-2.0
// Python's global lock, which tasks in Python take.
#pragma once

#include "cann_cpu/export.h"

namespace cann_cpu {

// Gives the lock away while the thread waits for tasks, if it has the lock and there are tasks in Python. torch_npu
// keeps the lock in some of its waits.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* const thread_;
};

// Takes the lock for a task, and turns Python's garbage collector off until no task runs. What the collector frees may
// wait for a stream, as a compiled graph of torchair does: then the task would wait for itself.
class CANN_EXPORT WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const int state_;
};

// From now on there are tasks in Python.
void expect_python_tasks();

}  // namespace cann_cpu
