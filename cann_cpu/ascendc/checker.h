// SPDX-License-Identifier: Apache-2.0
// Follows one block through its program and stops it at the first thing that hardware would not forgive.
//
// Pipes work beside each other, so what the program says first need not happen first. Every pipe has a clock: what it
// knows of the others' progress, which grows by flags, queues and barriers alone. Two accesses of one byte by different
// pipes, one of which writes, are a hazard unless the later one's pipe knows that the earlier one has ended. That holds
// whatever the timing of a run, so that a missing flag is found in every run.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ascendc/data_copy.h"
#include "ascendc/instruction.h"
#include "memory.h"
#include "shadow.h"

namespace AscendC::cpu {

// Device memory that a block wrote.
struct DeviceWrite {
  uintptr_t begin;
  uintptr_t end;
  uint32_t block;
  Access access;
};

class Checker {
 public:
  Checker(const std::byte* unified_buffer, const DeviceMemory& device)
      : unified_buffer_(unified_buffer), device_(device) {
    for (uint32_t pipe = 0; pipe < kPipes; ++pipe) clocks_[pipe][pipe] = 1;
  }

  struct Instruction {
    const char* name;
    Where where;
    pipe_t pipe;
  };

  void touch(const Instruction& by, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes);
  void touch(const Instruction& by, Use use, const GlobalMemory& memory, int64_t offset, int64_t bytes);
  void touch(const Instruction& by, const Lanes& lanes, const Operand& operand);
  void check_alignment(const Instruction& by, const LocalMemory& memory, uint32_t alignment);

  void allocated(const Buffer& buffer, pipe_t producer);
  void queued(const Buffer& buffer, pipe_t producer);
  void dequeued(const Buffer& buffer, pipe_t consumer);
  void released(const Buffer& buffer, pipe_t consumer);

  void set_flag(uint8_t event, uint32_t id, Where where);
  void wait_flag(uint8_t event, uint32_t id, Where where);
  void barrier();

  // What is wrong when the kernel has returned: flags that nobody waited for.
  void finish() const;

  std::vector<DeviceWrite> device_writes(uint32_t block) const;

 private:
  using Clock = std::array<uint32_t, kPipes>;
  struct Flag {
    Clock clock;
    Where where;
  };

  Clock release(pipe_t pipe);
  void acquire(pipe_t pipe, const Clock& clock);
  void access(Shadow& shadow, const Instruction& by, Use use, const std::byte* begin, int64_t bytes, uintptr_t base);
  bool was_read(const Shadow& shadow, pipe_t pipe, uintptr_t begin, uintptr_t end) const;
  void check_alive(const Instruction& by, const LocalMemory& memory) const;
  void check_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier,
                     uintptr_t begin, uintptr_t end, uintptr_t base) const;

  const std::byte* unified_buffer_;
  const DeviceMemory& device_;
  std::array<Clock, kPipes> clocks_ = {};  // [a][b]: the epoch of b up to which a knows that b has ended
  Shadow local_shadow_;
  Shadow device_shadow_;
  std::unordered_map<uint32_t, Clock> ready_;  // by number of the buffer
  std::unordered_map<uint32_t, Clock> released_;
  std::array<std::array<std::optional<Flag>, kEventIds>, kPipes * kPipes> flags_;
};

// Fails if two blocks wrote the same bytes of the device: nothing orders blocks.
void check_blocks_apart(const char* kernel, const std::vector<std::vector<DeviceWrite>>& writes);

}  // namespace AscendC::cpu
