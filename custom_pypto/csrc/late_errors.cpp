// SPDX-License-Identifier: Apache-2.0
// Keeps errors of the task queue, and raises them where the values of tensors leave an NPU.
#include "late_errors.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "registration.h"

namespace custom_pypto {
namespace {

class LateErrors {
 public:
  static LateErrors& get() {
    static auto* const errors = new LateErrors;  // never destroyed: the queue may still run at exit
    return *errors;
  }

  void keep(std::string message) {
    std::lock_guard lock(mutex_);
    if (std::exchange(watches_exit_, true) == false) {
      std::atexit([] { get().print(); });
    }
    messages_ += messages_.empty() ? message : "\n" + message;
    any_ = true;
    if (exiting_) {
      print_kept();
    }
  }

  std::string take() {
    if (!any_.load(std::memory_order_relaxed)) {
      return {};
    }
    std::lock_guard lock(mutex_);
    any_ = false;
    return std::exchange(messages_, {});
  }

 private:
  void print() {
    std::lock_guard lock(mutex_);
    exiting_ = true;
    print_kept();
  }

  void print_kept() {
    if (!messages_.empty()) {
      std::fprintf(stderr, "%s\n", std::exchange(messages_, {}).c_str());
    }
  }

  std::mutex mutex_;
  std::string messages_;
  std::atomic<bool> any_ = false;
  bool watches_exit_ = false;
  bool exiting_ = false;
};

// Every call passes this key, whatever its device, and no other function has it.
constexpr c10::DispatchKeySet kBehind(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

// A copy to the CPU has waited for the stream, so what failed before it is known.
at::Tensor& copy(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const auto op = find_operator<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>("aten::copy_");
  op.redispatch(keys & kBehind, self, source, non_blocking);
  if (self.is_cpu() && source.is_privateuseone()) {
    raise_late_errors();
  }
  return self;
}

at::Scalar item(c10::DispatchKeySet keys, const at::Tensor& self) {
  static const auto op = find_operator<at::Scalar(const at::Tensor&)>("aten::_local_scalar_dense");
  const at::Scalar value = op.redispatch(keys & kBehind, self);
  if (self.is_privateuseone()) {
    raise_late_errors();
  }
  return value;
}

TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  m.impl("copy_", &copy);
  m.impl("_local_scalar_dense", &item);
}

}  // namespace

void keep_late_error(std::string message) { LateErrors::get().keep(std::move(message)); }

void raise_late_errors() {
  const std::string messages = LateErrors::get().take();
  TORCH_CHECK(messages.empty(), messages,
              " (found after the call had returned; with ASCEND_LAUNCH_BLOCKING=1 the call itself raises it)");
}

}  // namespace custom_pypto
