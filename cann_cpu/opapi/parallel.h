// SPDX-License-Identifier: Apache-2.0
// Loops over parts that threads take in turns.
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/FunctionRef.h>

namespace cann_cpu {

// Calls body for 0 to count - 1: in as many threads as there are, where there is enough for all, so that they do not
// wait for each other in every operator; otherwise one after the other, and operators use the threads. Neighbours go to
// different threads, since later ones often have more to do.
inline void for_each_in_parallel(int64_t count, c10::function_ref<void(int64_t i)> body) {
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (threads == 1 || count < threads) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    const c10::InferenceMode as_in_the_stream;
    for (int64_t thread = first; thread < last; ++thread) {
      for (int64_t i = thread; i < count; i += threads) body(i);
    }
  });
}

}  // namespace cann_cpu
