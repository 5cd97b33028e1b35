// SPDX-License-Identifier: Apache-2.0
// Keeps a stream busy.
#include <chrono>
#include <thread>

#include "table.h"

using namespace cann_cpu;

// For as long as the clock of a device, 1.65 GHz, takes for so many cycles.
ACLNN(Sleep, [](Phase phase, Ints cycles) {
  TORCH_CHECK(cycles.size() == 1 && cycles[0] > 0, "cycles is ", cycles, "; expected one number of more than 0");
  if (phase == Phase::Check) return;
  std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(cycles[0]) / 1.65e9));
});
