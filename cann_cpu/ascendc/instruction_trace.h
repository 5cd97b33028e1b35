// SPDX-License-Identifier: Apache-2.0
// Instructions of the matrix unit report their operands: errors to the author, accesses to the checker.
#pragma once

#include <initializer_list>
#include <string>

#include "checker.h"

namespace AscendC::cpu {

inline void need_memory(const char* name, Where where, const LocalMemory& memory,
                        std::initializer_list<Hardware> allowed, const char* what) {
  for (const Hardware hardware : allowed) {
    if (hardware_of(memory) == hardware) return;
  }
  std::string names;
  for (const Hardware hardware : allowed) names += (names.empty() ? "" : " or ") + std::string(name_of(hardware));
  fail(where, "%s: %s lies in %s; it must be in %s", name, what, name_of(hardware_of(memory)), names.c_str());
}

// An instruction's reports to the checker, if there is one.
struct InstructionTrace {
  Checker* const checker = cpu::checker();
  Checker::Instruction by;

  // A copy of bytes between memories of the core.
  void copy(Path path, int64_t bytes) const {
    if (Recorder* recorder = this->recorder()) recorder->copy(name(), path, static_cast<uint64_t>(bytes));
  }
  // A copy of runs of bytes between a memory of the core and device memory.
  void copy(Path path, const std::byte* data, const Runs& runs) const {
    if (Recorder* recorder = this->recorder()) recorder->copy(name(), path, data, runs.count, runs.bytes, runs.step);
  }
  void align(const LocalMemory& memory, uint32_t alignment) const {
    if (checker != nullptr) checker->check_alignment(by, memory, alignment);
  }
  template <class Memory>
  void touch(Use use, const Memory& memory, int64_t offset, int64_t bytes) const {
    if (checker != nullptr) checker->touch(by, use, memory, offset, bytes);
  }

  Recorder* recorder() const { return checker != nullptr ? checker->recorder() : nullptr; }
  Recorder::Name name() const { return {by.name, by.where, by.pipe}; }
};

}  // namespace AscendC::cpu
