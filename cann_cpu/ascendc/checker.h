// SPDX-License-Identifier: Apache-2.0
// Follows one core through its program and stops it at the first operation that would fail on hardware.
//
// Pipes work in parallel, so the first instruction of a program need not happen first. Every pipe has a clock with its
// knowledge of the others' progress, which only flags, queues and barriers advance. Two accesses of one byte by
// different pipes, at least one a write, are a hazard unless the later one's pipe knows that the earlier one has ended.
// This does not depend on the timing of a run, so every run finds a missing flag.
//
// CANN's documentation specifies the order of two accesses by one pipe to the same bytes. The scalar unit is always in
// order. Vector instructions are in order by the PipeBarrier<PIPE_V> that the compiler inserts, unless an option
// disables it. Copies that write the same bytes are in order only by the author's PipeBarrier.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ascendc/data_copy.h"
#include "ascendc/instruction.h"
#include "knowledge.h"
#include "memory.h"
#include "recorder.h"
#include "scalar_log.h"
#include "shadow.h"

namespace AscendC::cpu {

// "MTE2"
const char* name_of(pipe_t pipe);

// What messages call a buffer: the variable that InitBuffer was called with, and its line.
std::string name_of(const Buffer& buffer);

// Device memory that a core wrote or read, and what the pipe that did so knew of other cores.
struct DeviceUse {
  uintptr_t begin;
  uintptr_t end;
  uint32_t core;
  Use use;
  pipe_t pipe;
  Access access;
  Message learned;
};

class Team;

class Checker {
 public:
  // With a recorder if the launch is profiled.
  Checker(const Block& block, const DeviceMemory& device, AutoSync auto_sync, Recorder* recorder)
      : core_(block.core.number),
        is_cube_(block.core.cube),
        memories_(block.memories),
        device_(device),
        auto_sync_(auto_sync),
        recorder_(recorder) {
    for (uint32_t pipe = 0; pipe < kPipes; ++pipe) clocks_[pipe][pipe] = 1;
  }

  struct Instruction {
    const char* name;
    Where where;
    pipe_t pipe;
    bool atomic = false;
    bool in_order = false;   // with what the pipe did before
    bool by_server = false;  // a server does it, when the scalar unit asks it to
    bool fractals = false;   // what it reads has rows or columns that do not count, and something that does
    // The instruction moves whole blocks of 32 bytes. The rest of a block may lie past the end of padded device memory.
    // It is recorded here if nothing has written it to the unified buffer.
    std::vector<std::pair<uintptr_t, uintptr_t>>* rests = nullptr;
  };

  // Warns of the rests that a copy out has put into a tensor, which goes from src to dst.
  void warn_of_rests(const Instruction& by, const LocalMemory& src, const Runs& src_runs, const GlobalMemory& dst,
                     const Runs& dst_runs) const;

  bool repeat_scalar(const Where& where, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes) {
    if (!scalars_.repeat(where, use, memory, offset, bytes)) return false;
    last_ = where;
    return true;
  }
  bool log_scalar(const char* name, const Where& where, Use use, const LocalMemory& memory, int64_t offset,
                  int64_t bytes);
  void touch(const Instruction& by, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes);
  void touch(const Instruction& by, Use use, const GlobalMemory& memory, int64_t offset, int64_t bytes);
  void touch(const Instruction& by, const Lanes& lanes, const Operand& operand);
  void check_overlap(const Instruction& by, const Lanes& lanes, const Operand& dst, const Operand& src,
                     bool may_accumulate) const;
  void check_alignment(const Instruction& by, const LocalMemory& memory, uint32_t alignment);

  void allocated(const Buffer& buffer, pipe_t producer);
  void queued(const Buffer& buffer, pipe_t producer);
  void dequeued(const Buffer& buffer, pipe_t consumer);
  void released(const Buffer& buffer, pipe_t consumer);

  void set_flag(uint8_t event, uint32_t id, Where where);
  void wait_flag(uint8_t event, uint32_t id, Where where);
  void barrier(pipe_t pipe, Where where);

  // The flags that a queue sets and waits for by itself.
  void queue_takes(const char* name, uint8_t event, uint32_t id, Where where);
  void queue_returns(uint8_t event, uint32_t id);

  void check_tiling(Where where, const char* type, const void* address, size_t bytes) const;
  void clean_cache(const std::byte* address, bool all);

  // What a pipe has to say to other cores, and what all pipes learn of them.
  Message said(pipe_t pipe);
  void learn(const Message& message);

  // The core has waited for a server: what that has done lies before all that follows.
  void served(const Message& message);

  // Where the last instruction stands that touched memory.
  const Where& last() const { return last_; }

  // Reports errors at the end of the kernel: flags without a wait, a data cache that was not written back.
  void finish() const;

  // What the core has done to device memory.
  std::vector<DeviceUse> device_uses();

  // Null: nothing is recorded.
  Recorder* recorder() const { return recorder_; }

 private:
  // A pipe's knowledge when it signals its progress to others.
  struct Progress {
    pipe_t pipe;
    Clock clock;
    Message learned;
  };
  struct Flag {
    Progress progress;
    Where where;
  };

  // Notes what the scalar unit has touched meanwhile.
  void note_scalars();
  Progress release(pipe_t pipe);
  void acquire(pipe_t pipe, const Progress& progress);
  void take_over(pipe_t pipe, const Progress& progress);
  void wait_by_compiler(const std::array<uint32_t, kPipes>& epochs);
  void learn(pipe_t pipe, const Message& message);
  const Message& learned(pipe_t pipe, uint32_t epoch) const;
  void note_uses();
  // What messages call the elements: their numbers in memory that begins at `base`, of a size each.
  struct Naming {
    std::string name;
    uintptr_t base;
    uint32_t itemsize;
    std::string elements(uintptr_t begin, uintptr_t end) const;
  };
  Naming naming(const LocalMemory& memory) const;
  Naming naming(const GlobalMemory& memory) const;

  template <class Memory>
  void access(Shadow& shadow, const Instruction& by, Use use, const Memory& memory, int64_t offset, int64_t bytes);
  void check_cache(const Instruction& by, Use use, const GlobalMemory& memory, uintptr_t begin, uintptr_t end);
  bool is_ordered(const Instruction& by, Use use, pipe_t pipe, const Access& earlier) const;
  static bool is_known(const History& history, pipe_t pipe, Use use, const Access& access);
  void check_not_of_queue(const char* name, uint8_t event, uint32_t id, Where where) const;
  ScalarLog::Range right_for_scalars(const Instruction& by, Use use, uintptr_t at) const;
  static bool is_alive(const LocalMemory& memory);
  // Vector instructions on a cube core: the compiler leaves them out.
  bool is_left_out(const LocalMemory& memory) const { return is_cube_ && hardware_of(memory) == Hardware::UB; }
  void check_alive(const Instruction& by, const LocalMemory& memory) const;
  template <class Memory>
  void check_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier,
                     uintptr_t begin, uintptr_t end, const Memory& memory) const;

  const uint32_t core_;
  const bool is_cube_;
  const std::array<std::byte*, kHardwares>& memories_;
  const DeviceMemory& device_;
  const AutoSync auto_sync_;
  Recorder* const recorder_;
  std::array<Clock, kPipes> clocks_ = {};  // [a][b]: the epoch of b up to which a knows that b has ended
  Clock own_ended_ = {};                   // the same of a itself, whose own clock is the epoch that it is in
  // What each pipe knows of other cores, from an epoch on.
  std::array<std::vector<std::pair<uint32_t, Message>>, kPipes> learned_;
  Shadow local_shadow_;
  // What the local shadow does not know yet.
  ScalarLog scalars_{memories_[static_cast<size_t>(Hardware::UB)]};
  Shadow device_shadow_;
  std::unordered_map<uint32_t, Progress> ready_;  // by number of the buffer
  std::unordered_map<uint32_t, Progress> released_;
  std::array<std::array<std::optional<Flag>, kEventIds>, kPipes * kPipes> flags_;
  std::array<std::array<std::optional<Where>, kEventIds>, kPipes * kPipes> flags_of_queues_;

  // Bytes that the scalar unit wrote to device memory and that are still in its cache, a bit each.
  struct CachedLine {
    uint64_t written = 0;
    Where where = {};
  };
  std::map<uintptr_t, CachedLine> cached_;
  Where last_ = {};
  std::vector<DeviceUse> uses_;  // noted before the core learned of others
};

// Fails if a core wrote bytes of the device that another one wrote or read, and neither waited for the other.
void check_cores_apart(const char* kernel, const std::vector<DeviceUse>& uses, const Team& team,
                       const DeviceMemory& device);

}  // namespace AscendC::cpu
