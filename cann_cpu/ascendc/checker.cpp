// SPDX-License-Identifier: Apache-2.0
// Follows one block through its program and stops it at the first thing that hardware would not forgive.
#include "checker.h"

#include <algorithm>
#include <cinttypes>
#include <string>

namespace AscendC::cpu {
namespace {

constexpr const char* kPipeNames[kPipes] = {"S", "V", "MTE2", "MTE3"};

std::string event_name(uint8_t event) {
  return std::string(kPipeNames[source(event)]) + "_" + kPipeNames[target(event)];
}

bool is_same(const Where& one, const Where& other) {
  return one.line() == other.line() && one.column() == other.column() && one.file_name() == other.file_name();
}

const char* verb(Use use) { return use == Use::Read ? "reads" : "writes"; }
const char* past(Use use) { return use == Use::Read ? "read" : "wrote"; }

uintptr_t address_of(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

// Calls see(offset, bytes) for the runs of bytes that an operand's lanes are, in order.
template <class See>
void for_each_run(const Lanes& lanes, const Operand& operand, const See& see) {
  const uint32_t per_block = kBlockBytes / operand.itemsize;
  int64_t begin = 0, end = 0;
  const auto add = [&](int64_t from, int64_t to) {
    if (from == end) {
      end = to;
      return;
    }
    if (begin != end) see(begin, end - begin);
    begin = from;
    end = to;
  };
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const Mask& mask = lanes.of_repeat(repeat);
    const int64_t start = int64_t{repeat} * operand.repeat_stride;
    if (operand.block_stride == kBlockBytes && mask.elements != Mask::kNotFirst) {
      if (mask.elements != 0) add(start, start + int64_t{mask.elements} * operand.itemsize);
      continue;
    }
    for (uint32_t lane = 0; lane < lanes.per_repeat; ++lane) {
      if (!mask.has(lane)) continue;
      const int64_t at = start + int64_t{lane / per_block} * operand.block_stride + lane % per_block * operand.itemsize;
      add(at, at + operand.itemsize);
    }
  }
  if (begin != end) see(begin, end - begin);
}

}  // namespace

Checker::Clock Checker::release(pipe_t pipe) {
  const Clock clock = clocks_[pipe];
  ++clocks_[pipe][pipe];
  return clock;
}

void Checker::acquire(pipe_t pipe, const Clock& clock) {
  for (uint32_t other = 0; other < kPipes; ++other) {
    uint32_t& ended = other == pipe ? own_ended_[pipe] : clocks_[pipe][other];
    ended = std::max(ended, clock[other]);
  }
  if (pipe != PIPE_S) return;
  // The scalar unit issues the instructions of all pipes: what it has waited for, they have.
  for (uint32_t issued = 0; issued < kPipes; ++issued) {
    for (uint32_t other = 0; other < kPipes; ++other) {
      if (other == PIPE_S || issued == PIPE_S) continue;
      uint32_t& ended = other == issued ? own_ended_[issued] : clocks_[issued][other];
      ended = std::max(ended, clocks_[PIPE_S][other]);
    }
  }
}

bool Checker::is_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier) const {
  if (earlier.epoch == 0) return true;
  if (pipe != by.pipe) return clocks_[by.pipe][pipe] >= earlier.epoch;
  if (own_ended_[pipe] >= earlier.epoch) return true;
  switch (pipe) {
    case PIPE_V:
      // An instruction may write where it reads, and the same bytes in several repeats.
      return auto_sync_ || (use == Use::Write && by.name == earlier.name && is_same(by.where, earlier.where));
    case PIPE_MTE2:
    case PIPE_MTE3:
      return use == Use::Read || earlier_use == Use::Read;
    default:
      return true;
  }
}

void Checker::check_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier,
                            uintptr_t begin, uintptr_t end, uintptr_t base) const {
  if (is_ordered(by, use, pipe, earlier_use, earlier)) return;
  const std::string cure = pipe == by.pipe ? "that; use PipeBarrier<PIPE_" + std::string(kPipeNames[pipe]) + ">"
                                           : "that; use EnQue and DeQue, SetFlag and WaitFlag of HardEvent::" +
                                                 event_name(event(pipe, by.pipe)) + ", or PipeBarrier<PIPE_ALL>";
  fail(by.where,
       "hazard: %s on pipe %s %s bytes %" PRIuPTR " to %" PRIuPTR
       " of the tensor, which %s on pipe %s %s in line %u, and nothing makes pipe %s wait for %s",
       by.name, kPipeNames[by.pipe], verb(use), begin - base, end - base - 1, earlier.name, kPipeNames[pipe],
       past(earlier_use), earlier.where.line(), kPipeNames[by.pipe], cure.c_str());
}

// Whether the pipe has read the whole range in its epoch already: then all that matters was checked and noted.
bool Checker::was_read(const Shadow& shadow, pipe_t pipe, uintptr_t begin, uintptr_t end) const {
  const Shadow::Segment* segment = shadow.find(begin);
  return segment != nullptr && segment->end >= end && segment->history.reads[pipe].epoch == clocks_[pipe][pipe];
}

void Checker::access(Shadow& shadow, const Instruction& by, Use use, const std::byte* data, int64_t bytes,
                     uintptr_t base) {
  const uintptr_t begin = address_of(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  if (use == Use::Read && was_read(shadow, by.pipe, begin, end)) return;
  uintptr_t defined_until = begin;
  shadow.for_each(begin, end, [&](uintptr_t from, uintptr_t to, const History& history) {
    check_ordered(by, use, history.writer, Use::Write, history.write, from, to, base);
    if (use == Use::Write) {
      for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
        check_ordered(by, use, static_cast<pipe_t>(pipe), Use::Read, history.reads[pipe], from, to, base);
      }
    }
    if (history.defined && from == defined_until) defined_until = to;
  });
  if (&shadow == &local_shadow_ && use == Use::Read && defined_until != end) {
    fail(by.where, "%s reads byte %" PRIuPTR " of the tensor, which nothing has written", by.name,
         defined_until - base);
  }
  const Access access{by.name, by.where, clocks_[by.pipe][by.pipe]};
  if (use == Use::Write) {
    shadow.assign(begin, end, {.defined = true, .writer = by.pipe, .write = access, .reads = {}});
  } else {
    shadow.change(begin, end, [&](History& history) { history.reads[by.pipe] = access; });
  }
}

void Checker::check_alive(const Instruction& by, const LocalMemory& memory) const {
  if (memory.buffer == nullptr)
    fail(by.where, "%s: the tensor has no memory; take one from a queue or a TBuf", by.name);
  if (memory.generation == 0) return;  // of a TBuf
  if (memory.generation != memory.buffer->generation || memory.buffer->state == Buffer::State::Free) {
    fail(by.where, "%s: the tensor was given back by FreeTensor", by.name);
  }
}

void Checker::check_alignment(const Instruction& by, const LocalMemory& memory, uint32_t alignment) {
  check_alive(by, memory);
  const auto offset = static_cast<uint64_t>(memory.data - unified_buffer_);
  if (offset % alignment == 0) return;
  fail(by.where, "%s: the tensor begins %" PRIu64 " bytes into its buffer; it must be a multiple of %u", by.name,
       static_cast<uint64_t>(memory.data - memory.buffer->data), alignment);
}

void Checker::touch(const Instruction& by, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes) {
  check_alive(by, memory);
  if (bytes == 0) return;
  if (offset + bytes > memory.bytes) {
    fail(by.where, "%s %s bytes %" PRId64 " to %" PRId64 " of a tensor of %" PRId64 " bytes", by.name, verb(use),
         offset, offset + bytes - 1, std::max<int64_t>(memory.bytes, 0));
  }
  access(local_shadow_, by, use, memory.data + offset, bytes, address_of(memory.data));
}

void Checker::touch(const Instruction& by, Use use, const GlobalMemory& memory, int64_t offset, int64_t bytes) {
  if (bytes == 0) return;
  if (offset + bytes > memory.bytes) {
    fail(by.where, "%s %s bytes %" PRId64 " to %" PRId64 " of a GlobalTensor of %" PRId64 " bytes", by.name, verb(use),
         offset, offset + bytes - 1, std::max<int64_t>(memory.bytes, 0));
  }
  if (memory.origin == nullptr) {
    fail(by.where, "%s %s %" PRId64 " bytes of %s", by.name, verb(use), bytes, device_.nothing().c_str());
  }
  const std::byte* begin = memory.data + offset;
  const DeviceBuffer* buffer = device_.find(memory.origin, begin, static_cast<size_t>(bytes));
  if (buffer == nullptr && device_.complete()) {
    fail(by.where, "%s %s %" PRId64 " bytes from the address %p on, which lies in none of the launch's buffers",
         by.name, verb(use), bytes, static_cast<const void*>(memory.origin));
  }
  if (buffer != nullptr) {
    const auto first = begin - static_cast<const std::byte*>(buffer->begin);
    if (first < 0 || static_cast<uint64_t>(first + bytes) > buffer->bytes) {
      fail(by.where, "%s %s bytes %td to %" PRId64 " of %s, which has %zu bytes", by.name, verb(use), first,
           first + bytes - 1, buffer->name, buffer->bytes);
    }
  }
  access(device_shadow_, by, use, begin, bytes, address_of(memory.data));
}

void Checker::touch(const Instruction& by, const Lanes& lanes, const Operand& operand) {
  check_alignment(by, operand.memory, operand.alignment);
  for_each_run(lanes, operand,
               [&](int64_t offset, int64_t bytes) { touch(by, operand.use, operand.memory, offset, bytes); });
}

void Checker::allocated(const Buffer& buffer, pipe_t producer) {
  const auto found = released_.find(buffer.number);
  if (found != released_.end()) acquire(producer, found->second);
  const uintptr_t begin = address_of(buffer.data);
  local_shadow_.change(begin, begin + buffer.bytes, [](History& history) { history.defined = false; });
}

void Checker::queued(const Buffer& buffer, pipe_t producer) { ready_[buffer.number] = release(producer); }
void Checker::dequeued(const Buffer& buffer, pipe_t consumer) { acquire(consumer, ready_[buffer.number]); }
void Checker::released(const Buffer& buffer, pipe_t consumer) { released_[buffer.number] = release(consumer); }

void Checker::set_flag(uint8_t event, uint32_t id, Where where) {
  std::optional<Flag>& flag = flags_[event][id];
  if (flag) {
    fail(where, "SetFlag: %s %u is set already, in line %u, and nobody has waited for it", event_name(event).c_str(),
         id, flag->where.line());
  }
  flag = Flag{release(source(event)), where};
}

void Checker::wait_flag(uint8_t event, uint32_t id, Where where) {
  std::optional<Flag>& flag = flags_[event][id];
  if (!flag) {
    fail(where, "WaitFlag: %s %u is not set; call SetFlag before, or the pipe waits for ever",
         event_name(event).c_str(), id);
  }
  acquire(target(event), flag->clock);
  flag.reset();
}

void Checker::barrier(pipe_t pipe, Where where) {
  if (pipe == PIPE_S) {
    fail(where, "PipeBarrier: PIPE_S is not allowed, hardware stops at it; the scalar unit is in order by itself");
  }
  if (pipe < kPipes) {
    own_ended_[pipe] = release(pipe)[pipe];
    return;
  }
  if (pipe != PIPE_ALL) return;  // of the matrix unit
  Clock all;
  for (uint32_t each = 0; each < kPipes; ++each) all[each] = release(static_cast<pipe_t>(each))[each];
  for (uint32_t each = 0; each < kPipes; ++each) acquire(static_cast<pipe_t>(each), all);
}

void Checker::finish() const {
  for (uint32_t event = 0; event < flags_.size(); ++event) {
    for (uint32_t id = 0; id < kEventIds; ++id) {
      if (!flags_[event][id]) continue;
      fail(flags_[event][id]->where, "SetFlag: nobody has waited for %s %u when the kernel ends; call WaitFlag",
           event_name(static_cast<uint8_t>(event)).c_str(), id);
    }
  }
}

void Checker::add_device_uses(uint32_t block, std::vector<DeviceUse>& writes, std::vector<DeviceUse>& reads) const {
  for (const auto& [begin, segment] : device_shadow_.segments()) {
    const auto add = [&, begin = begin, end = segment.end](std::vector<DeviceUse>& uses, const Access& access) {
      if (access.epoch != 0) uses.push_back({begin, end, block, access});
    };
    add(writes, segment.history.write);
    for (const Access& read : segment.history.reads) add(reads, read);
  }
}

namespace {

// `what` is said of the block whose access is the one that is reported.
[[noreturn]] void fail_blocks(const char* kernel, const DeviceUse& reported, const DeviceUse& other,
                              const std::string& what, const char* cure) {
  const auto [first, second] = std::minmax(reported.block, other.block);
  const Where where = reported.access.where;
  throw KernelError(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " + kernel + ", blocks " +
                    std::to_string(first) + " and " + std::to_string(second) + ": " + what + " in line " +
                    std::to_string(other.access.where.line()) + ", and nothing orders blocks; " + cure);
}

}  // namespace

void check_blocks_apart(const char* kernel, std::vector<DeviceUse> writes, const std::vector<DeviceUse>& reads) {
  std::ranges::sort(writes, {}, &DeviceUse::begin);
  const DeviceUse* last = nullptr;  // a block's own do not overlap
  for (const DeviceUse& write : writes) {
    if (last != nullptr && write.begin < last->end) {
      fail_blocks(kernel, write, *last, "both write the same bytes of device memory, the other one",
                  "give each block bytes of its own");
    }
    last = &write;
  }
  for (const DeviceUse& read : reads) {
    for (auto write = std::ranges::upper_bound(writes, read.begin, {}, &DeviceUse::end);
         write != writes.end() && write->begin < read.end; ++write) {
      if (write->block == read.block) continue;
      fail_blocks(kernel, read, *write,
                  "block " + std::to_string(read.block) + " reads bytes of device memory that the other one writes",
                  "let a block read what no other one writes, and leave the rest to a second kernel");
    }
  }
}

void check_vector(const char* name, Where where, const Lanes& lanes, std::initializer_list<Operand> operands) {
  Checker& checker = *current_block->checker;
  // What is read is read before anything is written: an operand may be both.
  for (const Use use : {Use::Read, Use::Write}) {
    for (const Operand& operand : operands) {
      if (operand.use == use) checker.touch({name, where, PIPE_V}, lanes, operand);
    }
  }
}

void check_local(const char* name, Where where, pipe_t pipe, Use use, const LocalMemory& memory, int64_t offset,
                 int64_t bytes) {
  current_block->checker->touch({name, where, pipe}, use, memory, offset, bytes);
}

void check_global(const char* name, Where where, pipe_t pipe, Use use, const GlobalMemory& memory, int64_t offset,
                  int64_t bytes) {
  current_block->checker->touch({name, where, pipe}, use, memory, offset, bytes);
}

namespace {

template <class Memory>
void touch_runs(const Checker::Instruction& by, Use use, const Memory& memory, const Runs& runs) {
  Checker& checker = *current_block->checker;
  if constexpr (std::is_same_v<Memory, LocalMemory>) checker.check_alignment(by, memory, kBlockBytes);
  if (runs.step == runs.bytes) {
    checker.touch(by, use, memory, 0, runs.count * runs.bytes);
    return;
  }
  for (uint32_t run = 0; run < runs.count; ++run) checker.touch(by, use, memory, run * runs.step, runs.bytes);
}

}  // namespace

void check_copy_in(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs, const GlobalMemory& src,
                   const Runs& src_runs) {
  touch_runs({name, where, PIPE_MTE2}, Use::Read, src, src_runs);
  LocalMemory whole = dst;  // what DataCopyPad fills a run's last block up with may lie behind the tensor's elements
  whole.bytes = whole_blocks(dst.bytes);
  touch_runs({name, where, PIPE_MTE2}, Use::Write, whole, dst_runs);
}

void check_copy_out(const char* name, Where where, const GlobalMemory& dst, const Runs& dst_runs,
                    const LocalMemory& src, const Runs& src_runs) {
  touch_runs({name, where, PIPE_MTE3}, Use::Read, src, src_runs);
  touch_runs({name, where, PIPE_MTE3}, Use::Write, dst, dst_runs);
}

void check_copy_within(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                       const LocalMemory& src, const Runs& src_runs) {
  touch_runs({name, where, PIPE_V}, Use::Read, src, src_runs);
  touch_runs({name, where, PIPE_V}, Use::Write, dst, dst_runs);
}

}  // namespace AscendC::cpu
