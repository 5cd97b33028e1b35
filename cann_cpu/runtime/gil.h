// SPDX-License-Identifier: Apache-2.0
// Python's global lock, which tasks in Python take.
#pragma once

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

// From now on there are tasks in Python.
void expect_python_tasks();

}  // namespace cann_cpu
