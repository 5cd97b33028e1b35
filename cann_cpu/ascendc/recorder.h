// SPDX-License-Identifier: Apache-2.0
// Records the program of one core as it ran: its instructions with their costs, and what their pipes wait for. The
// timeline is computed from this when all cores have ended, so that it does not depend on the timing of the run.
#pragma once

#include <array>
#include <unordered_set>
#include <vector>

#include "ascendc/instruction.h"
#include "costs.h"
#include "knowledge.h"
#include "memory.h"

namespace AscendC::cpu {

// Runs of bytes in device memory, by their offset in a buffer.
struct DeviceRuns {
  uint64_t buffer;  // a number that no other buffer of the launch has
  int64_t offset;
  int64_t count, bytes, step;
};

class Recorder {
 public:
  // An instruction as the author wrote it.
  struct Name {
    const char* name;
    Where where;
    pipe_t pipe;
  };

  struct Operation {
    Name by;
    uint64_t work;  // bytes, repeats, products of fractals, elements
    Cost cost;
    bool has_path;
    Path path;
    uint32_t first_run, runs;  // of device memory
  };

  struct Step {
    enum class Kind : uint8_t {
      Operation,  // number `value`
      Release,    // all that the pipe did before has ended: its epoch `value`
      Acquire,    // the pipe waits for the end of epoch `value` of `source`
      Learn       // the scalar unit waits for message `value` of other cores
    };
    Kind kind;
    pipe_t pipe, source;
    uint32_t value;
  };

  Recorder(bool is_cube, const DeviceMemory& device) : is_cube_(is_cube), device_(device) {}

  // is_more: of the instruction that was added last, if it is the same.
  void vector(const Name& by, uint64_t repeats, uint32_t per_repeat, bool is_more = false);
  void products(const Name& by, uint64_t fractals, bool whole_float);
  void copy(const Name& by, Path path, uint64_t bytes);
  // Between a memory of the core and device memory: `count` runs of bytes, `step` bytes from start to start.
  void copy(const Name& by, Path path, const std::byte* data, int64_t count, int64_t bytes, int64_t step);
  // An element in the unified buffer (null) or in device memory.
  void scalar(const Name& by, const std::byte* data);
  void clean_cache() { cached_.clear(); }
  // Memory that an instruction reports piece by piece. The pieces of one instruction are one operation.
  void part(const Name& by, Use use, int64_t bytes, const std::byte* device_data);

  void release(pipe_t pipe, uint32_t epoch) { steps_.push_back({Step::Kind::Release, pipe, pipe, epoch}); }
  void acquire(pipe_t pipe, pipe_t source, uint32_t epoch);
  void learn(const Message& message);

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<DeviceRuns>& runs() const { return runs_; }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  Operation& add(const Name& by, uint64_t work, const Cost& cost);
  DeviceRuns runs_of(const std::byte* data, int64_t count, int64_t bytes, int64_t step) const;
  void vector_part(const Name& by, Use use, int64_t bytes);
  bool goes_on(const Name& by) const;
  void raise(uint64_t repeats);

  const bool is_cube_;
  const DeviceMemory& device_;
  std::vector<Step> steps_;
  std::vector<Operation> operations_;
  std::vector<DeviceRuns> runs_;
  std::vector<Message> messages_;
  std::unordered_set<uint64_t> cached_;  // lines of device memory that the scalar unit has read or written

  // The last added operation:
  Use last_use_ = Use::Read;
  bool is_announced_ = false;  // with its repeats, before its pieces
  uint32_t per_repeat_ = 0;
};

}  // namespace AscendC::cpu
