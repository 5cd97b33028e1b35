// SPDX-License-Identifier: Apache-2.0
#include "cann_cpu/gil.h"

#include <atomic>

#include "cann_cpu/python_function.h"

namespace cann_cpu {
namespace {

std::atomic<bool> has_python_tasks{false};

// Null if the thread has no lock to give away.
void* give_gil_away() {
  if (!has_python_tasks) return nullptr;
  static auto* const is_initialized = python_function<int()>("Py_IsInitialized");
  static auto* const this_thread = python_function<void*()>("PyGILState_GetThisThreadState");
  static auto* const check = python_function<int()>("PyGILState_Check");
  static auto* const save = python_function<void*()>("PyEval_SaveThread");
  const bool has_gil = is_initialized() != 0 && this_thread() != nullptr && check() != 0;
  return has_gil ? save() : nullptr;
}

int take_gil() {
  static auto* const ensure = python_function<int()>("PyGILState_Ensure");
  return ensure();
}

// Both change with the lock alone.
int running_tasks = 0;
bool was_collecting = false;

}  // namespace

WithoutGil::WithoutGil() : thread_(give_gil_away()) {}

WithoutGil::~WithoutGil() {
  static auto* const restore = python_function<void(void*)>("PyEval_RestoreThread");
  if (thread_ != nullptr) restore(thread_);
}

WithGil::WithGil() : state_(take_gil()) {
  static auto* const disable_collection = python_function<int()>("PyGC_Disable");
  if (running_tasks++ == 0) was_collecting = disable_collection() != 0;
}

WithGil::~WithGil() {
  static auto* const enable_collection = python_function<int()>("PyGC_Enable");
  static auto* const release = python_function<void(int)>("PyGILState_Release");
  if (--running_tasks == 0 && was_collecting) enable_collection();
  release(state_);
}

void expect_python_tasks() { has_python_tasks = true; }

}  // namespace cann_cpu
