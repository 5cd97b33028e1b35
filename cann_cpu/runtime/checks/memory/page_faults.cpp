// SPDX-License-Identifier: Apache-2.0
#include "page_faults.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "findings.h"
#include "protection_keys.h"
#include "runtime/checks/call_site.h"
#include "tasks.h"

namespace cann_cpu::memory {
namespace {

struct sigaction previous_action;

// The kind of access that faulted, as far as the machine says.
bool is_write(const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
  constexpr uint32_t kEsrMagic = 0x45535201;
  const auto* at = static_cast<const ucontext_t*>(context)->uc_mcontext.__reserved;
  for (uint32_t head[2]; std::memcpy(head, at, sizeof(head)), head[0] != 0 && head[1] != 0; at += head[1]) {
    uint64_t esr = 0;
    if (head[0] == kEsrMagic) return std::memcpy(&esr, at + sizeof(head), sizeof(esr)), (esr & 0x40) != 0;
  }
  return false;
#endif
}

// A thread that a task of a stream has started for its own work is none of the host's.
bool is_hosts_thread() { return is_worker() ? is_in_host_function : gettid() == getpid() || calls_of_thread > 0; }

[[noreturn]] void stop(const Buffer& buffer, uintptr_t address, bool writes) {
  const std::string native = native_call_site(), python = python_call_site_nonblocking();
  const std::string by = python.empty() ? native : python + (native.empty() ? "" : " (" + native + ")");
  const std::string fault = std::string("device memory ") + (writes ? "written" : "read") + " on the host";
  const auto offset = static_cast<int64_t>(address - buffer.begin());
  report_finding(
      fault.c_str(), "at its byte " + std::to_string(offset), describe(buffer), "by " + by,
      "An NPU's memory has no address on the host: copy it (tensor.cpu(), aclrtMemcpy). The program stops here.");
  _exit(66);
}

// What a task does beside the accesses that it declares.
void tell_stray(const Buffer& buffer, bool is_in_front, uintptr_t address, bool writes) {
  const std::string task = running_task();
  if (buffer.freed_at > 0) return report_use_after_free(buffer, task);
  const uintptr_t edge = is_in_front ? buffer.begin() - address : address - buffer.end() + 1;
  report_finding(kOutOfBounds,
                 std::string(writes ? "written: " : "read: ") + std::to_string(edge) +
                     (is_in_front ? " in front of the buffer's first byte" : " past the buffer's last byte"),
                 describe(buffer), task, kBoundsAdvice);
}

// Whether the thread can continue.
bool serve_fault(uintptr_t address, bool writes) {
  const bool is_allowed = host_accesses > 0 || (!is_hosts_thread() && (is_worker() || buffers().touching > 0));
  Buffer known;
  bool is_in_front = false;
  {
    const std::lock_guard lock(buffers().mutex);
    Buffer* found = buffers().find(address);
    if (found != nullptr && is_allowed && !found->is_released) {
      buffers().open(*found);
      return true;
    }
    if (found == nullptr) std::tie(found, is_in_front) = buffers().find_nearest(address);
    if (found == nullptr) return false;
    known = *found;
  }
  if (!is_allowed) stop(known, address, writes);
  tell_stray(known, is_in_front, address, writes);
  // The fault is reported. The program continues with poison.
  if (address >= known.block.pages && address < known.block.limit) {
    guarded::revive(known.block.pages, known.block.limit);
  } else {
    guarded::revive(address, address + 1);
  }
  return true;
}

void handle_fault(int number, siginfo_t* information, void* context) {
  const int kept = errno;
  const auto address = reinterpret_cast<uintptr_t>(information->si_addr);
  if (guarded::contains(address) && serve_fault(address, is_write(context))) {
    if (protection_keys::are_used()) protection_keys::grant_to_interrupted(context);
    errno = kept;
    return;
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) return previous_action.sa_sigaction(number, information, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    return previous_action.sa_handler(number);
  }
  signal(number, SIG_DFL);  // and the access, once more, ends the process
}

}  // namespace

void handle_page_faults() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle_fault) return;
  previous_action = now;
  struct sigaction own{};
  own.sa_sigaction = handle_fault;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &own, nullptr);
}

}  // namespace cann_cpu::memory
