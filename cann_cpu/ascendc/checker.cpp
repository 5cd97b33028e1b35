// SPDX-License-Identifier: Apache-2.0
// Follows one core through its program and stops it at the first thing that hardware would not forgive.
#include "checker.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <fstream>
#include <string_view>
#include <tuple>

#include "ascendc/tiling.h"
#include "team.h"

namespace AscendC::cpu {
namespace {

constexpr uintptr_t kCacheLine = DeviceMemory::kCacheLine;
constexpr const char* kPipeNames[kPipes] = {"S", "V", "MTE2", "MTE3", "M", "MTE1", "FIX"};

std::string event_name(uint8_t event) {
  return std::string(kPipeNames[source(event)]) + "_" + kPipeNames[target(event)];
}

bool is_same(const Where& one, const Where& other) {
  if (identity(one) == identity(other)) return true;
  return one.line() == other.line() && one.column() == other.column() && one.file_name() == other.file_name();
}

const char* verb(Use use) { return use == Use::Read ? "reads" : "writes"; }
const char* past(Use use) { return use == Use::Read ? "read" : "wrote"; }

uintptr_t address_of(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

// The source text of InitBuffer's first argument.
std::string variable_of(const Where& where) {
  std::ifstream file(where.file_name());
  std::string line;
  for (uint32_t number = 0; number < where.line(); ++number) {
    if (!std::getline(file, line)) return "a buffer";
  }
  constexpr std::string_view kCall = "InitBuffer(";
  size_t begin = line.rfind(kCall, std::max<size_t>(where.column(), 1) - 1);
  if (begin == std::string::npos) begin = line.find(kCall);
  if (begin == std::string::npos) return "a buffer";
  begin = line.find_first_not_of(' ', begin + kCall.size());
  const size_t end = line.find(',', begin);
  return begin < end && end != std::string::npos ? line.substr(begin, end - begin) : "a buffer";
}

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
    if (operand.block_stride == 0 && mask.elements >= per_block && mask.elements != Mask::kNotFirst) {
      add(start, start + kBlockBytes);  // one block, again and again
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

const char* name_of(pipe_t pipe) { return kPipeNames[pipe]; }

std::string name_of(const Buffer& buffer) {
  if (buffer.made.line() == 0) return name_of(buffer.hardware);
  return variable_of(buffer.made) + " (InitBuffer in line " + std::to_string(buffer.made.line()) + ")";
}

Checker::Progress Checker::release(pipe_t pipe) {
  if (pipe == PIPE_S) note_scalars();  // of the epoch that ends
  const Progress progress{pipe, clocks_[pipe], learned(pipe, clocks_[pipe][pipe])};
  if (recorder_ != nullptr) recorder_->release(pipe, clocks_[pipe][pipe]);
  ++clocks_[pipe][pipe];
  return progress;
}

void Checker::acquire(pipe_t pipe, const Progress& progress) {
  if (recorder_ != nullptr) recorder_->acquire(pipe, progress.pipe, progress.clock[progress.pipe]);
  take_over(pipe, progress);
}

void Checker::take_over(pipe_t pipe, const Progress& progress) {
  for (uint32_t other = 0; other < kPipes; ++other) {
    uint32_t& ended = other == pipe ? own_ended_[pipe] : clocks_[pipe][other];
    ended = std::max(ended, progress.clock[other]);
  }
  learn(pipe, progress.learned);
  if (pipe != PIPE_S) return;
  // The scalar unit issues the instructions of all pipes: what it has waited for, they have.
  for (uint32_t issued = 0; issued < kPipes; ++issued) {
    for (uint32_t other = 0; other < kPipes; ++other) {
      if (other == PIPE_S || issued == PIPE_S) continue;
      uint32_t& ended = other == issued ? own_ended_[issued] : clocks_[issued][other];
      ended = std::max(ended, clocks_[PIPE_S][other]);
    }
    if (issued != PIPE_S) learn(static_cast<pipe_t>(issued), progress.learned);
  }
}

const Message& Checker::learned(pipe_t pipe, uint32_t epoch) const {
  static const Message kNothing;
  const auto& all = learned_[pipe];
  const auto after = std::ranges::upper_bound(all, epoch, {}, &std::pair<uint32_t, Message>::first);
  return after == all.begin() ? kNothing : std::prev(after)->second;
}

// What the pipe has done before it knew is of an earlier epoch.
void Checker::learn(pipe_t pipe, const Message& message) {
  const Message& known = learned(pipe, clocks_[pipe][pipe]);
  if (message == nullptr || message == known) return;
  if (pipe == PIPE_S) note_scalars();
  Message all = merged(known, message);
  learned_[pipe].emplace_back(++clocks_[pipe][pipe], std::move(all));
}

Message Checker::said(pipe_t pipe) {
  const Progress progress = release(pipe);
  return merged(progress.learned, std::make_shared<const Knowledge>(Knowledge{{core_, progress.clock}}));
}

void Checker::learn(const Message& message) {
  note_uses();
  if (message == nullptr) return;
  if (recorder_ != nullptr) recorder_->learn(message);
  for (uint32_t pipe = 0; pipe < kPipes; ++pipe) learn(static_cast<pipe_t>(pipe), message);
}

// The compiler lets the scalar unit wait for what the pipes have done up to these epochs.
void Checker::wait_by_compiler(const std::array<uint32_t, kPipes>& epochs) {
  for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
    if (pipe == PIPE_S || clocks_[PIPE_S][pipe] >= epochs[pipe]) continue;
    if (epochs[pipe] == clocks_[pipe][pipe]) ++clocks_[pipe][pipe];
    Progress progress{static_cast<pipe_t>(pipe), {}, learned(static_cast<pipe_t>(pipe), epochs[pipe])};
    progress.clock[pipe] = epochs[pipe];
    take_over(PIPE_S, progress);
  }
}

void Checker::served(const Message& message) {
  learn(message);
  const Progress progress = release(PIPE_S);
  for (uint32_t pipe = 0; pipe < kPipes; ++pipe) {
    if (pipe != PIPE_S) acquire(static_cast<pipe_t>(pipe), progress);
  }
}

bool Checker::is_ordered(const Instruction& by, Use use, pipe_t pipe, const Access& earlier) const {
  if (earlier.epoch == 0) return true;
  if (pipe != by.pipe) {
    const bool by_compiler = auto_sync_ == AutoSync::On && (pipe == PIPE_S || by.pipe == PIPE_S);
    return by_compiler || clocks_[by.pipe][pipe] >= earlier.epoch;
  }
  if (by.in_order || own_ended_[pipe] >= earlier.epoch) return true;
  // An instruction may write where it reads, and the same bytes in several repeats.
  const bool itself = use == Use::Write && by.name == earlier.name && is_same(by.where, earlier.where);
  switch (pipe) {
    case PIPE_V:
      return auto_sync_ != AutoSync::Off || itself;
    case PIPE_M:
      return itself;
    case PIPE_MTE2:
    case PIPE_MTE3:
    case PIPE_MTE1:
    case PIPE_FIX:
      return false;  // it reads one memory and writes the other: both are writes
    default:
      return true;
  }
}

std::string Checker::Naming::elements(uintptr_t begin, uintptr_t end) const {
  const bool whole = (begin - base) % itemsize == 0 && (end - base) % itemsize == 0;
  const uint32_t size = whole ? itemsize : 1;
  const auto first = static_cast<intptr_t>(begin - base) / size, last = static_cast<intptr_t>(end - base) / size - 1;
  const std::string unit = whole ? "element" : "byte";
  if (first == last) return unit + " " + std::to_string(first) + " of " + name;
  return unit + "s " + std::to_string(first) + " to " + std::to_string(last) + " of " + name;
}

Checker::Naming Checker::naming(const LocalMemory& memory) const {
  return {cpu::name_of(*memory.buffer), address_of(memory.buffer->data), memory.itemsize};
}

Checker::Naming Checker::naming(const GlobalMemory& memory) const {
  const DeviceBuffer* buffer = device_.find(address_of(memory.origin));
  if (buffer == nullptr) return {"a GlobalTensor", address_of(memory.origin), memory.itemsize};
  return {buffer->name, reinterpret_cast<uintptr_t>(buffer->begin), memory.itemsize};
}

template <class Memory>
void Checker::check_ordered(const Instruction& by, Use use, pipe_t pipe, Use earlier_use, const Access& earlier,
                            uintptr_t begin, uintptr_t end, const Memory& memory) const {
  if (is_ordered(by, use, pipe, earlier)) return;
  const std::string cure = pipe == by.pipe ? "that; use PipeBarrier<PIPE_" + std::string(kPipeNames[pipe]) + ">"
                                           : "that; use EnQue and DeQue, SetFlag and WaitFlag of HardEvent::" +
                                                 event_name(event(pipe, by.pipe)) + ", or PipeBarrier<PIPE_ALL>";
  fail(by.where,
       "hazard: %s on pipe %s %s %s, which %s on pipe %s %s in line %u, and nothing makes pipe %s wait for %s", by.name,
       kPipeNames[by.pipe], verb(use), naming(memory).elements(begin, end).c_str(), earlier.name, kPipeNames[pipe],
       past(earlier_use), earlier.where.line(), kPipeNames[by.pipe], cure.c_str());
}

// Whether everything relevant about an access to bytes of one history was already checked and noted in the pipe's
// epoch. A wait for what the scalar unit wrote is also a wait for what it has since read there.
bool Checker::is_known(const History& history, pipe_t pipe, Use use, const Access& access) {
  const bool scalar_wrote = pipe == PIPE_S && history.writer == PIPE_S && history.write.epoch == access.epoch;
  if (use == Use::Read) return scalar_wrote || history.epoch_of_read(pipe) == access.epoch;
  return scalar_wrote && history.write == access && !history.has_reads();
}

template <class Memory>
void Checker::access(Shadow& shadow, const Instruction& by, Use use, const Memory& memory, int64_t offset,
                     int64_t bytes) {
  last_ = by.where;
  const bool is_local = &shadow == &local_shadow_;
  const uintptr_t begin = address_of(memory.data + offset);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  Access access{by.name, by.where, clocks_[by.pipe][by.pipe], by.atomic};
  auto position = shadow.position(begin);
  if (const History* history = shadow.whole(position, begin, end); history != nullptr) {
    if ((history->defined || !is_local) && is_known(*history, by.pipe, use, access)) return;
  }
  uintptr_t defined_until = begin;
  bool something_defined = false;
  std::array<uint32_t, kPipes> waits = {};
  const auto meets = [&](pipe_t pipe, Use earlier_use, const Access& earlier, uintptr_t from, uintptr_t to) {
    check_ordered(by, use, pipe, earlier_use, earlier, from, to, memory);
    waits[pipe] = std::max(waits[pipe], earlier.epoch);
  };
  const bool may_have_rests = by.rests != nullptr && use == Use::Read && is_local;
  shadow.for_each(position, begin, end, [&](uintptr_t from, uintptr_t to, const History& history) {
    // The unwritten rest of a block whose beginning is written.
    if (may_have_rests && !history.defined && from == defined_until) {
      const uintptr_t block = begin + (from - begin) / kBlockBytes * kBlockBytes;
      if (from > block && to <= block + kBlockBytes) {
        by.rests->emplace_back(from, to);
        defined_until = to;
      }
    }
    if (!(by.atomic && history.write.atomic)) {
      meets(history.writer, Use::Write, history.write, from, to);
    }
    if (use == Use::Write) {
      history.for_each_read([&](pipe_t pipe, const Access& read) {
        if (!(by.atomic && read.atomic)) meets(pipe, Use::Read, read, from, to);
      });
      // For other blocks it is a plain write if one of the block's was.
      if (history.write.epoch != 0 && !history.write.atomic) access.atomic = false;
    }
    if (history.defined && from == defined_until) defined_until = to;
    something_defined |= history.defined;
  });
  if (by.pipe == PIPE_S && auto_sync_ == AutoSync::On) {
    wait_by_compiler(waits);
    position = shadow.position(begin);  // what the unit learned may have changed the segments
  }
  if (by.fractals && something_defined) defined_until = end;
  if (is_local && use == Use::Read && defined_until != end) {
    const uintptr_t item = defined_until - (defined_until - begin) % memory.itemsize;
    const std::string cure = defined_until == begin
                                 ? "copy or compute it before"
                                 : "line " + std::to_string(shadow.find(defined_until - 1)->write.where.line()) +
                                       " wrote what lies before it";
    fail(by.where, "%s reads %s, which nothing has written; %s", by.name,
         naming(memory).elements(item, std::min<uintptr_t>(item + memory.itemsize, end)).c_str(), cure.c_str());
  }
  if (use == Use::Write) {
    shadow.assign(position, begin, end, by.pipe, access);
  } else {
    shadow.change(position, begin, end, [&](History& history) { history.set_read(by.pipe, access); });
  }
}

bool Checker::is_alive(const LocalMemory& memory) {
  if (memory.buffer == nullptr) return false;
  return memory.generation == 0 ||  // of a TBuf
         (memory.generation == memory.buffer->generation && memory.buffer->state != Buffer::State::Free);
}

void Checker::check_alive(const Instruction& by, const LocalMemory& memory) const {
  if (is_alive(memory)) return;
  if (memory.buffer == nullptr) {
    fail(by.where, "%s: the tensor has no memory; take one from a queue or a TBuf", by.name);
  }
  fail(by.where, "%s: the tensor of %s was given back by FreeTensor; use it before", by.name,
       name_of(*memory.buffer).c_str());
}

// Whether the access is right, and the log takes it.
bool Checker::log_scalar(const char* name, const Where& where, Use use, const LocalMemory& memory, int64_t offset,
                         int64_t bytes) {
  if (is_cube_ || !is_alive(memory) || memory.buffer->hardware != Hardware::UB) return false;
  if (offset + bytes > memory.bytes) return false;
  const auto check = [&](uint64_t begin) {
    const uintptr_t base = address_of(memories_[static_cast<size_t>(Hardware::UB)]);
    return right_for_scalars({name, where, PIPE_S}, use, base + begin);
  };
  if (!scalars_.add(name, where, use, memory, offset, static_cast<uint32_t>(bytes), check)) return false;
  last_ = where;
  return true;
}

// The bytes around one, of one history, that the scalar unit may use; empty where it may not.
ScalarLog::Range Checker::right_for_scalars(const Instruction& by, Use use, uintptr_t at) const {
  const auto [begin, end, history] = local_shadow_.around(at);
  bool right = use == Use::Write;
  if (history != nullptr) {
    right = (right || history->defined) && is_ordered(by, use, history->writer, history->write);
    history->for_each_read(
        [&](pipe_t pipe, const Access& read) { right &= use == Use::Read || is_ordered(by, use, pipe, read); });
  }
  if (!right) return {};
  const uintptr_t base = address_of(memories_[static_cast<size_t>(Hardware::UB)]);
  return {std::max(begin, base) - base, end - base};
}

void Checker::note_scalars() {
  scalars_.take([this](const ScalarLog::Site& site, int64_t offset, int64_t bytes) {
    access(local_shadow_, {site.name, site.where, PIPE_S}, site.use, site.memory, offset, bytes);
  });
}

void Checker::check_alignment(const Instruction& by, const LocalMemory& memory, uint32_t alignment) {
  if (is_left_out(memory)) return;
  check_alive(by, memory);
  const auto offset = static_cast<uint32_t>(memory.data - memories_[static_cast<size_t>(hardware_of(memory))]);
  if (offset % alignment == 0) return;
  fail(by.where, "%s: the tensor begins %" PRIu64 " bytes into %s; it must be a multiple of %u", by.name,
       static_cast<uint64_t>(memory.data - memory.buffer->data), name_of(*memory.buffer).c_str(), alignment);
}

void Checker::touch(const Instruction& by, Use use, const LocalMemory& memory, int64_t offset, int64_t bytes) {
  if (is_left_out(memory)) return;
  if (by.pipe == PIPE_S && hardware_of(memory) != Hardware::UB) {
    fail(by.where, "%s: the scalar unit does not reach %s; copy to device memory or the unified buffer", by.name,
         name_of(hardware_of(memory)));
  }
  note_scalars();
  check_alive(by, memory);
  if (bytes == 0) return;
  if (offset + bytes > memory.bytes) {
    const Naming tensor{"a tensor of " + naming(memory).name, address_of(memory.data), memory.itemsize};
    const uintptr_t begin = tensor.base + static_cast<uintptr_t>(offset);
    fail(by.where, "%s %s %s, which has %" PRId64 "; take fewer, or a larger buffer: InitBuffer takes bytes", by.name,
         verb(use), tensor.elements(begin, begin + static_cast<uintptr_t>(bytes)).c_str(),
         std::max<int64_t>(memory.bytes, 0) / memory.itemsize);
  }
  access(local_shadow_, by, use, memory, offset, bytes);
}

void Checker::touch(const Instruction& by, Use use, const GlobalMemory& memory, int64_t offset, int64_t bytes) {
  if (bytes == 0) return;
  if (by.pipe != PIPE_S && auto_sync_ == AutoSync::On) note_scalars();  // what they waited for, the pipe has
  const uintptr_t begin = address_of(memory.data + offset), end = begin + static_cast<uintptr_t>(bytes);
  const auto size = static_cast<int64_t>(memory.itemsize);
  if (memory.origin == nullptr) {
    fail(by.where, "%s %s %" PRId64 " bytes of %s", by.name, verb(use), bytes, device_.nothing().c_str());
  }
  const int64_t slack = by.rests != nullptr ? kBlockBytes - 1 : 0;
  const auto end_by_author = [&] {
    return (static_cast<int64_t>(address_of(memory.data) - naming(memory).base) + memory.bytes) / size;
  };
  if (offset + bytes - slack > memory.bytes) {
    fail(by.where, "%s %s %s, which ends at %" PRId64 " by SetGlobalBuffer; take what is left of it", by.name,
         verb(use), naming(memory).elements(begin, end).c_str(), end_by_author());
  }
  const DeviceBuffer* buffer = device_.find(memory.origin, memory.data + offset, static_cast<size_t>(bytes));
  if (buffer == nullptr && device_.complete()) {
    fail(by.where, "%s %s %" PRId64 " bytes from the address %p on, which lies in none of the launch's buffers",
         by.name, verb(use), bytes, static_cast<const void*>(memory.origin));
  }
  if (buffer != nullptr) {
    const auto first = reinterpret_cast<uintptr_t>(buffer->begin);
    if (begin < first || end - static_cast<uintptr_t>(slack) > first + buffer->bytes) {
      fail(by.where, "%s %s %s, which has %" PRId64 " (%zu bytes); take what is left of it", by.name, verb(use),
           naming(memory).elements(begin, end).c_str(), static_cast<int64_t>(buffer->bytes) / size, buffer->bytes);
    }
    if (end > first + buffer->bytes) bytes = std::max<int64_t>(static_cast<int64_t>(first + buffer->bytes - begin), 0);
  }
  if (bytes == 0) return;
  if (use == Use::Write && offset + bytes > memory.bytes) {
    warn(by.where,
         "%s writes %s, which ends at %" PRId64
         " by SetGlobalBuffer: the rest of a block of 32 bytes, over what lies "
         "there; use DataCopyPad if that is not written later",
         by.name, naming(memory).elements(begin, begin + static_cast<uintptr_t>(bytes)).c_str(), end_by_author());
  }
  check_cache(by, use, memory, begin, begin + static_cast<uintptr_t>(bytes));
  access(device_shadow_, by, use, memory, offset, bytes);
}

// The scalar unit writes to a cache of lines, which goes to memory as whole lines when it likes.
void Checker::check_cache(const Instruction& by, Use use, const GlobalMemory& memory, uintptr_t begin, uintptr_t end) {
  if (by.pipe == PIPE_S && !by.by_server) {
    if (use == Use::Read) return;
    const uintptr_t start = device_.lines(begin, end).first;
    CachedLine& line = cached_[start];  // an element is in one line
    for (uintptr_t at = begin; at < end; ++at) line.written |= uint64_t{1} << (at - start);
    line.where = by.where;
    return;
  }
  for (auto at = cached_.lower_bound(begin - kCacheLine + 1); at != cached_.end() && at->first < end; ++at) {
    const auto& [start, line] = *at;
    const auto is_used = [&](uintptr_t byte) { return begin <= start + byte && start + byte < end; };
    bool meets = use == Use::Write;  // the line overwrites all its bytes
    for (uint32_t byte = 0; byte < kCacheLine; ++byte) meets |= (line.written >> byte & 1) != 0 && is_used(byte);
    if (!meets) continue;
    fail(by.where, "%s %s %s, where SetValue in line %u wrote to the data cache; call DataCacheCleanAndInvalid between",
         by.name, verb(use), naming(memory).elements(begin, end).c_str(), line.where.line());
  }
}

void Checker::warn_of_rests(const Instruction& by, const LocalMemory& src, const Runs& src_runs,
                            const GlobalMemory& dst, const Runs& dst_runs) const {
  for (const auto& [from, to] : *by.rests) {
    const auto offset = static_cast<int64_t>(from - address_of(src.data));
    const int64_t run = src_runs.count > 1 ? offset / src_runs.step : 0;
    const uintptr_t begin =
        address_of(dst.data) + static_cast<uintptr_t>(offset + run * (dst_runs.step - src_runs.step));
    const DeviceBuffer* buffer = device_.find(address_of(dst.origin));
    const uintptr_t end =
        buffer != nullptr ? reinterpret_cast<uintptr_t>(buffer->begin) + buffer->bytes : ~uintptr_t{0};
    if (begin >= end) continue;  // in the padding after the tensor
    warn(by.where,
         "%s copies %s, which nothing has written, to %s: the rest of a block of 32 bytes; use DataCopyPad if nothing "
         "writes there later",
         by.name, naming(src).elements(from, to).c_str(),
         naming(dst).elements(begin, std::min(end, begin + (to - from))).c_str());
    return;
  }
}

void Checker::check_tiling(Where where, const char* type, const void* address, size_t bytes) const {
  if (address == nullptr) fail(where, "%s is read from %s", type, device_.nothing().c_str());
  const DeviceBuffer* buffer = device_.find(address, address, bytes);
  if (buffer == nullptr || buffer->begin != address || buffer->bytes == bytes) return;
  fail(where, "%s has %zu bytes, and %s, from which it is read, has %zu", type, bytes, buffer->name, buffer->bytes);
}

void Checker::clean_cache(const std::byte* address, bool all) {
  if (recorder_ != nullptr) recorder_->clean_cache();
  if (all) {
    cached_.clear();
  } else {
    cached_.erase(device_.lines(address_of(address), address_of(address) + 1).first);
  }
}

void Checker::touch(const Instruction& by, const Lanes& lanes, const Operand& operand) {
  check_alignment(by, operand.memory, operand.alignment);
  for_each_run(lanes, operand,
               [&](int64_t offset, int64_t bytes) { touch(by, operand.use, operand.memory, offset, bytes); });
}

namespace {

struct Extent {
  uintptr_t begin, end;
  uint32_t block;
  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

// The bytes that an operand's lanes are in one repeat, an extent for each block of 32 that has some.
std::vector<Extent> extents_of(const Lanes& lanes, const Operand& operand, uint32_t repeat) {
  const uint32_t per_block = kBlockBytes / operand.itemsize;
  const Mask& mask = lanes.of_repeat(repeat);
  std::vector<Extent> extents;
  for (uint32_t lane = 0; lane < lanes.per_repeat; ++lane) {
    if (!mask.has(lane)) continue;
    const uint32_t block = lane / per_block;
    const uintptr_t at = address_of(operand.memory.data) + uintptr_t{repeat} * operand.repeat_stride +
                         uintptr_t{block} * operand.block_stride + lane % per_block * operand.itemsize;
    if (extents.empty() || extents.back().block != block) extents.push_back({at, at, block});
    extents.back().end = at + operand.itemsize;
  }
  return extents;
}

uintptr_t end_of(const Lanes& lanes, const Operand& operand) {
  const uint32_t per_block = kBlockBytes / operand.itemsize;
  const auto extent = [&](const Mask& mask) -> uint64_t {
    uint32_t lane = lanes.per_repeat;
    while (lane > 0 && !mask.has(lane - 1)) --lane;
    if (lane == 0) return 0;
    return uint64_t{(lane - 1) / per_block} * operand.block_stride + ((lane - 1) % per_block + 1) * operand.itemsize;
  };
  const uint64_t last = uint64_t{lanes.repeats - 1} * operand.repeat_stride + extent(lanes.last);
  const uint64_t before =
      lanes.repeats > 1 ? uint64_t{lanes.repeats - 2} * operand.repeat_stride + extent(lanes.mask) : 0;
  return address_of(operand.memory.data) + std::max(last, before);
}

}  // namespace

// In a repeat source and destination are the same or apart, and no repeat reads what an earlier one wrote; only the
// second source of an addition and the like may be its own result, with a stride of 0.
void Checker::check_overlap(const Instruction& by, const Lanes& lanes, const Operand& dst, const Operand& src,
                            bool may_accumulate) const {
  if (dst.memory.buffer != src.memory.buffer || is_left_out(dst.memory)) return;
  const bool same_start = dst.memory.data == src.memory.data;
  if (same_start && dst.itemsize == src.itemsize && dst.block_stride == src.block_stride &&
      dst.repeat_stride == src.repeat_stride) {
    return;
  }
  if (end_of(lanes, dst) <= address_of(src.memory.data) || end_of(lanes, src) <= address_of(dst.memory.data)) return;
  const bool accumulates = may_accumulate && (dst.repeat_stride == 0 || src.repeat_stride == 0);
  std::vector<Extent> written;
  for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
    const std::vector<Extent> reads = extents_of(lanes, src, repeat), writes = extents_of(lanes, dst, repeat);
    const bool same_repeat = same_start && uint64_t{repeat} * dst.repeat_stride == uint64_t{repeat} * src.repeat_stride;
    for (const Extent& read : reads) {
      for (const Extent& earlier : written) {
        if (accumulates || !read.meets(earlier)) continue;
        fail(by.where,
             "%s: repeat %u reads %s, which an earlier repeat has written; let source and destination lie apart",
             by.name, repeat, naming(src.memory).elements(read.begin, read.end).c_str());
      }
      for (const Extent& write : writes) {
        if (!read.meets(write)) continue;
        if (dst.itemsize == src.itemsize ? write.begin == read.begin && write.block == read.block : same_repeat)
          continue;
        fail(by.where, "%s: source and destination overlap in part, at %s; they must be the same or lie apart", by.name,
             naming(src.memory).elements(std::max(read.begin, write.begin), std::min(read.end, write.end)).c_str());
      }
    }
    written.insert(written.end(), writes.begin(), writes.end());
  }
}

void Checker::allocated(const Buffer& buffer, pipe_t producer) {
  note_scalars();
  const auto found = released_.find(buffer.number);
  if (found != released_.end()) acquire(producer, found->second);
  const uintptr_t begin = address_of(buffer.data);
  local_shadow_.change(local_shadow_.position(begin), begin, begin + buffer.bytes,
                       [](History& history) { history.defined = false; });
}

void Checker::queued(const Buffer& buffer, pipe_t producer) { ready_[buffer.number] = release(producer); }
void Checker::dequeued(const Buffer& buffer, pipe_t consumer) { acquire(consumer, ready_[buffer.number]); }
void Checker::released(const Buffer& buffer, pipe_t consumer) {
  scalars_.forget_recent();
  released_[buffer.number] = release(consumer);
}

void Checker::set_flag(uint8_t event, uint32_t id, Where where) {
  std::optional<Flag>& flag = flags_[event][id];
  if (flag) {
    fail(where, "SetFlag: %s %u is set already, in line %u, without a wait for it since", event_name(event).c_str(), id,
         flag->where.line());
  }
  check_not_of_queue("SetFlag", event, id, where);
  flag = Flag{release(source(event)), where};
}

void Checker::check_not_of_queue(const char* name, uint8_t event, uint32_t id, Where where) const {
  const std::optional<Where>& taken = flags_of_queues_[event][id];
  if (!taken) return;
  fail(where, "%s: %s %u belongs to the queue that took it in line %u; take an id of FetchEventID or AllocEventID",
       name, event_name(event).c_str(), id, taken->line());
}

void Checker::queue_takes(const char* name, uint8_t event, uint32_t id, Where where) {
  if (const std::optional<Flag>& flag = flags_[event][id]) {
    fail(where,
         "%s: the queue takes %s %u, which SetFlag has set in line %u, without a wait for it since; take an id "
         "of AllocEventID for that",
         name, event_name(event).c_str(), id, flag->where.line());
  }
  flags_of_queues_[event][id] = where;
}

void Checker::queue_returns(uint8_t event, uint32_t id) { flags_of_queues_[event][id].reset(); }

void Checker::wait_flag(uint8_t event, uint32_t id, Where where) {
  check_not_of_queue("WaitFlag", event, id, where);
  std::optional<Flag>& flag = flags_[event][id];
  if (!flag) {
    fail(where, "WaitFlag: %s %u is not set; call SetFlag before, or the pipe waits indefinitely",
         event_name(event).c_str(), id);
  }
  acquire(target(event), flag->progress);
  flag.reset();
}

void Checker::barrier(pipe_t pipe, Where where) {
  if (pipe == PIPE_S) {
    fail(where, "PipeBarrier: PIPE_S is not allowed, hardware stops at it; the scalar unit is in order by itself");
  }
  if (pipe < kPipes) return acquire(pipe, release(pipe));
  Progress all = {};
  for (uint32_t each = 0; each < kPipes; ++each) {
    const Progress progress = release(static_cast<pipe_t>(each));
    all.clock[each] = progress.clock[each];
    all.learned = merged(all.learned, progress.learned);
    // The others are issued no instructions while the scalar unit waits.
    if (recorder_ != nullptr) recorder_->acquire(PIPE_S, progress.pipe, progress.clock[each]);
  }
  for (uint32_t each = 0; each < kPipes; ++each) take_over(static_cast<pipe_t>(each), all);
}

void Checker::finish() const {
  if (!cached_.empty()) {
    const auto& [begin, line] = *cached_.begin();
    const DeviceBuffer* buffer = device_.find(begin + static_cast<uintptr_t>(std::countr_zero(line.written)));
    fail(line.where,
         "SetValue: what it wrote to %s is in the data cache when the kernel ends; call "
         "DataCacheCleanAndInvalid after it",
         buffer != nullptr ? buffer->name : "device memory");
  }
  for (uint32_t event = 0; event < flags_.size(); ++event) {
    for (uint32_t id = 0; id < kEventIds; ++id) {
      if (!flags_[event][id]) continue;
      fail(flags_[event][id]->where, "SetFlag: %s %u has no wait when the kernel ends; call WaitFlag",
           event_name(static_cast<uint8_t>(event)).c_str(), id);
    }
  }
}

void Checker::note_uses() {
  device_shadow_.for_each([this](const Shadow::Segment& segment) {
    const auto add = [&](Use use, pipe_t pipe, const Access& access) {
      if (access.epoch == 0) return;
      uses_.push_back({segment.begin, segment.end, core_, use, pipe, access, learned(pipe, access.epoch)});
    };
    const History& history = *segment.history;
    add(Use::Write, history.writer, history.write);
    history.for_each_read([&](pipe_t pipe, const Access& read) { add(Use::Read, pipe, read); });
  });
  device_shadow_.clear();
}

std::vector<DeviceUse> Checker::device_uses() {
  note_uses();
  return std::move(uses_);
}

namespace {

// Finds pairs of uses of the same bytes by different cores, where at least one writes and neither waits for the other.
class CoresApart {
 public:
  CoresApart(const char* kernel, const Team& team, const DeviceMemory& device)
      : kernel_(kernel), team_(team), device_(device) {}

  void check_bytes(const std::vector<DeviceUse>& uses) const {
    sweep(uses, [this](const DeviceUse& one, const DeviceUse& other) {
      if (one.access.atomic && other.access.atomic) return;
      if (one.use == Use::Write && other.use == Use::Write) {
        fail(one, other, "both write " + bytes(one, other) + ", the other one", "give each block its own elements");
      }
      const DeviceUse& read = one.use == Use::Read ? one : other;
      fail(read, one.use == Use::Read ? other : one,
           team_.name(read.core) + " reads " + bytes(one, other) + ", which the other one writes",
           "let a block read what no other one writes, let them wait by SyncAll, or leave the rest to a second kernel");
    });
  }

  // A scalar write goes to memory with the line of the cache that it lies in.
  void check_lines(const std::vector<DeviceUse>& uses) const {
    const auto is_scalar_write = [](const DeviceUse& use) { return use.use == Use::Write && use.pipe == PIPE_S; };
    if (std::ranges::none_of(uses, is_scalar_write)) return;
    std::vector<DeviceUse> writes;
    for (DeviceUse use : uses) {
      if (use.use != Use::Write) continue;
      if (use.pipe == PIPE_S) std::tie(use.begin, use.end) = device_.lines(use.begin, use.end);
      writes.push_back(use);
    }
    sweep(writes, [this](const DeviceUse& one, const DeviceUse& other) {
      if (one.pipe != PIPE_S && other.pipe != PIPE_S) return;
      const DeviceUse& scalar = one.pipe == PIPE_S ? one : other;
      fail(scalar, one.pipe == PIPE_S ? other : one,
           std::string(scalar.access.name) + " writes a line of the data cache, 64 bytes of " + buffer(scalar) +
               ", in which the other one writes",
           "let the elements of blocks lie 64 bytes apart, or copy them from the unified buffer");
    });
  }

 private:
  template <class See>
  void sweep(const std::vector<DeviceUse>& uses, const See& see) const {
    std::vector<std::pair<uintptr_t, const DeviceUse*>> sorted;
    sorted.reserve(uses.size());
    for (const DeviceUse& use : uses) sorted.emplace_back(use.begin, &use);
    std::ranges::sort(sorted, [](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      const auto rest = [](const DeviceUse& use) { return std::tie(use.core, use.pipe, use.access.epoch, use.use); };
      return rest(*a.second) < rest(*b.second);
    });
    std::vector<const DeviceUse*> writes, reads;  // that reach as far as the current use
    for (const auto& [begin, current] : sorted) {
      const DeviceUse& use = *current;
      const auto compare = [&](std::vector<const DeviceUse*>& earlier) {
        std::erase_if(earlier, [&](const DeviceUse* other) { return other->end <= use.begin; });
        for (const DeviceUse* other : earlier) {
          if (other->core != use.core && !is_ordered(use, *other)) see(use, *other);
        }
      };
      compare(writes);
      if (use.use == Use::Write) compare(reads);
      (use.use == Use::Write ? writes : reads).push_back(&use);
    }
  }

  static bool is_ordered(const DeviceUse& one, const DeviceUse& other) {
    return knows(other.learned, one.core, one.pipe, one.access.epoch) ||
           knows(one.learned, other.core, other.pipe, other.access.epoch);
  }

  std::string buffer(const DeviceUse& use) const {
    const DeviceBuffer* buffer = device_.find(use.begin);
    return buffer != nullptr ? buffer->name : "device memory";
  }

  std::string bytes(const DeviceUse& one, const DeviceUse& other) const {
    const uintptr_t begin = std::max(one.begin, other.begin), end = std::min(one.end, other.end);
    const DeviceBuffer* found = device_.find(begin);
    const uintptr_t base = found != nullptr ? reinterpret_cast<uintptr_t>(found->begin) : 0;
    return "bytes " + std::to_string(begin - base) + " to " + std::to_string(end - base - 1) + " of " + buffer(one);
  }

  // `what` is said of the block whose access is the one that is reported.
  [[noreturn]] void fail(const DeviceUse& reported, const DeviceUse& other, const std::string& what,
                         const char* cure) const {
    const Core &first = team_.core(std::min(reported.core, other.core)),
               &second = team_.core(std::max(reported.core, other.core));
    const bool alike = first.cube == second.cube && first.sub_blocks == 1;
    const std::string names = alike ? "blocks " + std::to_string(first.block) + " and " + std::to_string(second.block)
                                    : team_.name(first.number) + ", and " + team_.name(second.number);
    const Where where = reported.access.where;
    throw KernelError(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " + kernel_ + ", " +
                      names + ": " + what + " in line " + std::to_string(other.access.where.line()) +
                      ", and neither waits for the other; " + cure);
  }

  const char* kernel_;
  const Team& team_;
  const DeviceMemory& device_;
};

}  // namespace

void check_cores_apart(const char* kernel, const std::vector<DeviceUse>& uses, const Team& team,
                       const DeviceMemory& device) {
  const CoresApart apart(kernel, team, device);
  apart.check_lines(uses);
  apart.check_bytes(uses);
}

void check_vector(const char* name, Where where, const Lanes& lanes, std::span<const Operand> operands, bool is_more) {
  Checker& checker = *current_block->checker;
  const Checker::Instruction by{name, where, PIPE_V};
  if (Recorder* recorder = checker.recorder()) {
    recorder->vector({name, where, PIPE_V}, lanes.repeats, lanes.per_repeat, is_more);
  }
  // What is read is read before anything is written: an operand may be both.
  for (const Use use : {Use::Read, Use::Write}) {
    for (const Operand& operand : operands) {
      if (operand.use == use) checker.touch(by, lanes, operand);
    }
  }
  for (const Operand& dst : operands) {
    for (const Operand& src : operands) {
      if (dst.use == Use::Write && src.use == Use::Read)
        checker.check_overlap(by, lanes, dst, src, &src == &operands.back());
    }
  }
}

void check_tiling(Where where, const char* type, const void* address, size_t bytes) {
  current_block->checker->check_tiling(where, type, address, bytes);
}

namespace {

[[gnu::noinline]] void check_first_scalar(Checker& checker, const char* name, Where where, Use use,
                                          const LocalMemory& memory, int64_t offset, int64_t bytes) {
  if (Recorder* recorder = checker.recorder()) recorder->scalar({name, where, PIPE_S}, nullptr);
  if (checker.log_scalar(name, where, use, memory, offset, bytes)) return;
  checker.touch({name, where, PIPE_S}, use, memory, offset, bytes);
}

}  // namespace

void check_scalar(Checker& checker, const char* name, Where where, Use use, const LocalMemory& memory, int64_t offset,
                  int64_t bytes) {
  if (checker.recorder() == nullptr && checker.repeat_scalar(where, use, memory, offset, bytes)) [[likely]]
    return;
  check_first_scalar(checker, name, where, use, memory, offset, bytes);
}

void check_local(const char* name, Where where, pipe_t pipe, Use use, const LocalMemory& memory, int64_t offset,
                 int64_t bytes) {
  Checker& checker = *current_block->checker;
  if (Recorder* recorder = checker.recorder()) recorder->part({name, where, pipe}, use, bytes, nullptr);
  checker.touch({name, where, pipe}, use, memory, offset, bytes);
}

void check_global(const char* name, Where where, pipe_t pipe, Use use, const GlobalMemory& memory, int64_t offset,
                  int64_t bytes, bool atomic) {
  Checker& checker = *current_block->checker;
  if (Recorder* recorder = checker.recorder()) recorder->part({name, where, pipe}, use, bytes, memory.data + offset);
  checker.touch({name, where, pipe, atomic}, use, memory, offset, bytes);
}

namespace {

using Rests = std::vector<std::pair<uintptr_t, uintptr_t>>;

// DataCopyPad moves exactly the given number of bytes.
bool moves_blocks(const char* name) { return std::string_view(name) == "DataCopy"; }

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
  if (Recorder* recorder = current_block->checker->recorder()) {
    recorder->copy({name, where, PIPE_MTE2}, hardware_of(dst) == Hardware::UB ? Path::GmToUb : Path::GmToL1, src.data,
                   src_runs.count, src_runs.bytes, src_runs.step);
  }
  Rests rests;
  touch_runs({.name = name, .where = where, .pipe = PIPE_MTE2, .rests = moves_blocks(name) ? &rests : nullptr},
             Use::Read, src, src_runs);
  LocalMemory whole = dst;  // DataCopyPad's filling of a run's last block may lie past the tensor's elements
  whole.bytes = whole_blocks(dst.bytes);
  touch_runs({name, where, PIPE_MTE2}, Use::Write, whole, dst_runs);
}

void check_copy_out(const char* name, Where where, const GlobalMemory& dst, const Runs& dst_runs,
                    const LocalMemory& src, const Runs& src_runs) {
  Checker& checker = *current_block->checker;
  if (Recorder* recorder = checker.recorder()) {
    recorder->copy({name, where, PIPE_MTE3}, Path::UbToGm, dst.data, dst_runs.count, dst_runs.bytes, dst_runs.step);
  }
  Rests rests;
  const bool atomic = current_block->atomic.kind != Atomic::Kind::None;
  const Checker::Instruction by{.name = name,
                                .where = where,
                                .pipe = PIPE_MTE3,
                                .atomic = atomic,
                                .rests = moves_blocks(name) ? &rests : nullptr};
  touch_runs({.name = name, .where = where, .pipe = PIPE_MTE3, .rests = by.rests}, Use::Read, src, src_runs);
  touch_runs(by, Use::Write, dst, dst_runs);
  if (!rests.empty()) checker.warn_of_rests(by, src, src_runs, dst, dst_runs);
}

void check_copy_within(const char* name, Where where, const LocalMemory& dst, const Runs& dst_runs,
                       const LocalMemory& src, const Runs& src_runs) {
  if (Recorder* recorder = current_block->checker->recorder()) {
    const auto bytes = static_cast<uint64_t>(src_runs.count * src_runs.bytes);
    recorder->vector({name, where, PIPE_V}, (bytes + kRepeatBytes - 1) / kRepeatBytes, kRepeatBytes / sizeof(float));
  }
  touch_runs({name, where, PIPE_V}, Use::Read, src, src_runs);
  touch_runs({name, where, PIPE_V}, Use::Write, dst, dst_runs);
}

}  // namespace AscendC::cpu
