// SPDX-License-Identifier: Apache-2.0
#include "gil.h"

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

}  // namespace

WithoutGil::WithoutGil() : thread_(give_gil_away()) {}

WithoutGil::~WithoutGil() {
  static auto* const restore = python_function<void(void*)>("PyEval_RestoreThread");
  if (thread_ != nullptr) restore(thread_);
}

void expect_python_tasks() { has_python_tasks = true; }

}  // namespace cann_cpu
