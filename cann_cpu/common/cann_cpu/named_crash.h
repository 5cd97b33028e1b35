// SPDX-License-Identifier: Apache-2.0
// Lets a crash in an author's code say whose it is before it ends the process.
#pragma once

#include <csignal>

namespace cann_cpu {

namespace detail {
inline constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
inline struct sigaction before_crash[NSIG];
inline void (*say_crash)(int signal);

inline void handle_crash(int signal) {
  say_crash(signal);
  sigaction(signal, &before_crash[signal], nullptr);  // which the instruction, once more, comes to
}
}  // namespace detail

// From now on `say` is called in a thread that one of these signals arrives in. Handlers that look at the address that
// was accessed stay alone: sanitizers, and the check `memory`, whose faults are no crashes.
inline void name_crashes(void (*say)(int signal)) {
  detail::say_crash = say;
  for (const int signal : detail::kCrashes) {
    struct sigaction own{};
    sigaction(signal, nullptr, &detail::before_crash[signal]);
    if ((detail::before_crash[signal].sa_flags & SA_SIGINFO) != 0) continue;
    own.sa_handler = detail::handle_crash;
    own.sa_flags = SA_NODEFER;
    sigaction(signal, &own, nullptr);
  }
}

}  // namespace cann_cpu
