// SPDX-License-Identifier: Apache-2.0
// Registers the checks that CANN_CPU_CHECK names.
#include <cstdlib>

#include "observers.h"
#include "report.h"
#include "runtime/log.h"

namespace cann_cpu {
namespace {

struct KnownChecks final : Observer {
  void on_start() override { require_known_checks(); }
} known_checks;

const bool is_installed = [] {
  Observer** last = &observers;
  const auto add = [&](Observer& observer) {
    *last = &observer;
    last = &observer.next;
  };
  if (std::getenv("CANN_CPU_CHECK") != nullptr) add(known_checks);
  if (is_on(Check::kFault)) add(faults);
  if (is_on(Check::kSchedule)) add(schedules);
  if (is_on(Check::kCost)) add(costs);
  if (is_on(Check::kRace) || is_on(Check::kMemory)) add(races);  // which also knows the order of the work
  if (is_on(Check::kMemory)) add(memory_uses);
  if (is_on(Check::kMemory)) device_allocator = &guarded_memory;
  if (is_on(Check::kSchedule)) scheduler = drawn_scheduler;
  errors_are_hidden = is_on(Check::kFault);
  observers_need_accesses = is_on(Check::kRace) || is_on(Check::kMemory) || are_digests_kept();
  return true;
}();

}  // namespace
}  // namespace cann_cpu
