// SPDX-License-Identifier: Apache-2.0
// Follows one block through its program and stops it at the first thing that hardware would not forgive.
//
// Pipes work beside each other, so what the program says first need not happen first. Every pipe has a clock: what it
// knows of the others' progress, which grows by flags, queues and barriers alone. Two accesses of one byte by different
// pipes, one of which writes, are a hazard unless the later one's pipe knows that the earlier one has ended. That holds
// whatever the timing of a run, so that a missing flag is found in every run.
//
// What a pipe does to the same bytes twice is in order as CANN's documentation says: the scalar unit by itself, vector
// instructions by the PipeBarrier<PIPE_V> that the compiler inserts, unless it was told not to, copies that write the
// same bytes by the author's PipeBarrier alone.
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

// Device memory that a block wrote or read.
struct DeviceUse {
  uintptr_t begin;
  uintptr_t end;
  uint32_t block;
  Access access;
};

class Checker {
 public:
  // auto_sync: the compiler orders vector instructions.
  Checker(const std::byte* unified_buffer, const DeviceMemory& device, bool auto_sync)
      : unified_buffer_(unified_buffer), device_(device), auto_sync_(auto_sync) {
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
  void barrier(pipe_t pipe, Where where);

  // What is wrong when the kernel has returned: flags that nobody waited for.
  void finish() const;

  // Adds what the block has done to device memory.
  void add_device_uses(uint32_t block, std::vector<DeviceUse>& writes, std::vector<DeviceUse>& reads) const;

 private:
  using Clock = std::array<uint32_t, kPipes>;
  struct Flag {
    Clock clock;
    Where where;
  };

  Clock release(pipe_t pipe);
  void acquire(pipe_t pipe, const Clock& clock);
  void access(Shadow& shadow, const Instruction& by, Use use, const std::byte* begin, int64_t bytes, uintptr_t base);
  bool is_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier) const;
  bool was_read(const Shadow& shadow, pipe_t pipe, uintptr_t begin, uintptr_t end) const;
  void check_alive(const Instruction& by, const LocalMemory& memory) const;
  void check_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier,
                     uintptr_t begin, uintptr_t end, uintptr_t base) const;

  const std::byte* unified_buffer_;
  const DeviceMemory& device_;
  const bool auto_sync_;
  std::array<Clock, kPipes> clocks_ = {};  // [a][b]: the epoch of b up to which a knows that b has ended
  Clock own_ended_ = {};                   // the same of a itself, whose own clock is the epoch that it is in
  Shadow local_shadow_;
  Shadow device_shadow_;
  std::unordered_map<uint32_t, Clock> ready_;  // by number of the buffer
  std::unordered_map<uint32_t, Clock> released_;
  std::array<std::array<std::optional<Flag>, kEventIds>, kPipes * kPipes> flags_;
};

// Fails if a block wrote bytes of the device that another one wrote or read: nothing orders blocks.
void check_blocks_apart(const char* kernel, std::vector<DeviceUse> writes, const std::vector<DeviceUse>& reads);

}  // namespace AscendC::cpu
