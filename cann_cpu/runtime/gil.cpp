// SPDX-License-Identifier: Apache-2.0
#include "gil.h"

#include <dlfcn.h>

#include <atomic>

namespace cann_cpu {
namespace {

std::atomic<bool> has_python_tasks{false};

template <class Function>
Function* function_of_python(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Null if the thread has no lock to give away.
void* give_gil_away() {
  if (!has_python_tasks) return nullptr;
  static auto* const is_initialized = function_of_python<int()>("Py_IsInitialized");
  static auto* const this_thread = function_of_python<void*()>("PyGILState_GetThisThreadState");
  static auto* const check = function_of_python<int()>("PyGILState_Check");
  static auto* const save = function_of_python<void*()>("PyEval_SaveThread");
  const bool has_gil = is_initialized() != 0 && this_thread() != nullptr && check() != 0;
  return has_gil ? save() : nullptr;
}

}  // namespace

WithoutGil::WithoutGil() : thread_(give_gil_away()) {}

WithoutGil::~WithoutGil() {
  static auto* const restore = function_of_python<void(void*)>("PyEval_RestoreThread");
  if (thread_ != nullptr) restore(thread_);
}

void expect_python_tasks() { has_python_tasks = true; }

}  // namespace cann_cpu
