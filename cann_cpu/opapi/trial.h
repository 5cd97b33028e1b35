// SPDX-License-Identifier: Apache-2.0
// Tries a call in phase one: its kernel runs on stand-ins for its tensors, so that an error which the arguments alone
// make is known before the call is enqueued. Calls that differ in their addresses only are tried once.
#pragma once

#include "cann_cpu/op.h"

namespace cann_cpu {

enum class Rejects { Any, Dtypes };  // which errors of a trial reject the call

// Throws std::invalid_argument, with the arguments' names from the kernel's source, where the call is wrong. Large
// tensors are tried as small ones, which shows wrong dtypes only.
void run_trial(const detail::KernelCall& call, Rejects rejects);

template <Rejects rejects>
void tried(const detail::KernelCall& call) {
  run_trial(call, rejects);
}

}  // namespace cann_cpu
