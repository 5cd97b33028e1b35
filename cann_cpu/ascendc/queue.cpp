// SPDX-License-Identifier: Apache-2.0
// Implements TPipe, queues and flags: divides the memories, and passes buffers from pipe to pipe.
#include "ascendc/queue.h"

#include <bit>
#include <string>
#include <utility>

#include "checker.h"
#include "running_block.h"

namespace AscendC::cpu {
namespace {

uint32_t checked_id(const char* name, int32_t id, Where where) {
  if (id < 0 || id >= static_cast<int32_t>(kEventIds)) fail(where, "%s: event id %d; there are 0 to 7", name, id);
  return static_cast<uint32_t>(id);
}

TEventID free_id(const char* name, uint8_t event, Where where) {
  const auto id = std::countr_one(static_cast<uint32_t>(running_block(where).ids_taken[event]));
  if (id >= static_cast<int>(kEventIds))
    fail(where, "%s: all 8 ids of this event are in use; each buffer of a queue that waits has one", name);
  return static_cast<TEventID>(id);
}

TEventID take_id(const char* name, uint8_t event, Where where) {
  const TEventID id = free_id(name, event, where);
  running_block(where).ids_taken[event] |= 1u << id;
  return id;
}

// A queue's own flags: EnQue and FreeTensor take an id and set it, DeQue and AllocTensor wait for it and give it back.
// Where nothing is checked, the queue needs none.
void take_flag(const char* name, Buffer& buffer, pipe_t from, pipe_t to, Where where) {
  Checker* checker = cpu::checker();
  if (checker == nullptr || from == to) return;
  buffer.event = event(from, to);
  buffer.event_id = take_id(name, buffer.event, where);
  checker->queue_takes(name, buffer.event, static_cast<uint32_t>(buffer.event_id), where);
}

void give_flag_back(Buffer& buffer, Where where) {
  if (buffer.event_id < 0) return;
  cpu::checker()->queue_returns(buffer.event, static_cast<uint32_t>(buffer.event_id));
  release_event_id(buffer.event, buffer.event_id, where);
  buffer.event_id = -1;
}

// Where `count` pieces of a memory, or of a chosen region of it, begin.
uint32_t take(RunningBlock& block, const char* name, uint32_t count, uint32_t bytes, Hardware hardware, Where where,
              Region* chosen) {
  Region& region = chosen != nullptr ? *chosen : block.regions[static_cast<size_t>(hardware)];
  if (region.hardware != hardware) {
    fail(where, "%s: a buffer in %s of a pool in %s", name, name_of(hardware), name_of(region.hardware));
  }
  const uint64_t rounded = static_cast<uint64_t>(whole_blocks(bytes));
  if (region.used + count * rounded > region.end) {
    const std::string of_chip = chosen != nullptr ? "" : std::string(", which ") + block.chip.name + " has";
    fail(where, "%s: %u buffers of %u bytes, with %u bytes in use already, exceed %s of %u bytes%s", name, count, bytes,
         region.used - region.begin, chosen != nullptr ? "the pool" : name_of(hardware), region.end - region.begin,
         of_chip.c_str());
  }
  const uint32_t begin = std::exchange(region.used, region.used + static_cast<uint32_t>(count * rounded));
  if (hardware == Hardware::UB) block.bytes_used = std::max<uint64_t>(block.bytes_used, region.used);
  return begin;
}

}  // namespace

Buffer* reserve(uint32_t count, uint32_t bytes, Hardware hardware, Where where, Region* region) {
  RunningBlock& block = running_block(where);
  if (hardware != Hardware::UB) has_matrix_unit("InitBuffer", where);
  const uint32_t begin = take(block, "InitBuffer", count, bytes, hardware, where, region);
  std::vector<Buffer>& buffers = block.buffers.emplace_back(count);
  for (uint32_t i = 0; i < count; ++i) {
    buffers[i].bytes = static_cast<uint32_t>(whole_blocks(bytes));
    buffers[i].hardware = hardware;
    buffers[i].data = block.memories[static_cast<size_t>(hardware)] + begin + i * buffers[i].bytes;
    buffers[i].number = block.buffer_count++;
    buffers[i].made = where;
    if (Checker* checker = block.checker) checker->allocated(buffers[i], PIPE_S);
  }
  return buffers.data();
}

Region reserve_region(uint32_t bytes, Hardware hardware, Where where, Region* outer) {
  const uint32_t begin = take(running_block(where), "InitBufPool", 1, bytes, hardware, where, outer);
  return {begin, begin + bytes, begin, hardware};
}

LocalMemory static_memory(Where where, Hardware hardware, uint32_t address, int64_t bytes) {
  RunningBlock& block = running_block(where);
  if (hardware != Hardware::UB) has_matrix_unit("LocalTensor", where);
  const uint32_t all = bytes_of(block.chip.architecture(), hardware);
  if (address + bytes > all) {
    fail(where, "LocalTensor: bytes %u to %lld of %s, which has %u", address, static_cast<long long>(address + bytes),
         name_of(hardware), all);
  }
  if (hardware == Hardware::UB) {
    block.bytes_used = std::max(block.bytes_used, address + static_cast<uint64_t>(bytes));
  }
  Buffer& whole = block.static_memory[static_cast<size_t>(hardware)];
  whole.hardware = hardware;
  whole.data = block.memories[static_cast<size_t>(hardware)];
  whole.bytes = all;
  return {whole.data + address, bytes, 0, &whole};
}

void reset_buffers(Where where, Region* region) {
  RunningBlock& block = running_block(where);
  pipe_barrier(PIPE_ALL, where);
  const auto free_all = [&](Region& freed) {
    freed.used = freed.begin;
    for (auto& buffers : block.buffers) {
      for (Buffer& buffer : buffers) {
        if (buffer.hardware != freed.hardware) continue;
        const auto begin = static_cast<uint32_t>(buffer.data - block.memories[static_cast<size_t>(freed.hardware)]);
        if (freed.begin <= begin && begin < freed.end) give_flag_back(buffer, where);
      }
    }
  };
  if (region != nullptr) return free_all(*region);
  for (Region& whole : block.regions) free_all(whole);
}

void Queue::init(uint32_t buffers, uint32_t bytes, Where where, Region* region) {
  // A device accepts an empty queue if nothing is copied through it.
  if (buffers == 0 || (bytes == 0 && checker() != nullptr)) {
    fail(where, "InitBuffer: a queue needs at least one buffer of at least one byte");
  }
  buffers_ = reserve(buffers, bytes, hardware_, where, region);
  buffer_count_ = buffers;
}

bool Queue::has_free() const {
  for (uint32_t i = 0; i < buffer_count_; ++i) {
    if (buffers_[i].state == Buffer::State::Free) return true;
  }
  return false;
}

LocalMemory Queue::allocate(Where where) {
  for (uint32_t i = 0; i < buffer_count_; ++i) {
    Buffer& buffer = buffers_[(next_ + i) % buffer_count_];
    if (buffer.state != Buffer::State::Free) continue;
    next_ = (next_ + i + 1) % buffer_count_;
    buffer.state = Buffer::State::Allocated;
    buffer.taken = where;
    ++buffer.generation;
    give_flag_back(buffer, where);
    if (Checker* checker = cpu::checker()) checker->allocated(buffer, producer_);
    return {buffer.data, buffer.bytes, buffer.generation, &buffer};
  }
  if (buffer_count_ == 0) fail(where, "AllocTensor: the queue has no buffers; call TPipe::InitBuffer first");
  fail(where, "AllocTensor: none of the %u buffers of %s is free, the first was taken in line %u; call FreeTensor",
       buffer_count_, name_of(buffers_[0]).c_str(), buffers_[0].taken.line());
}

Buffer& Queue::own(const char* name, const LocalMemory& memory, Where where) const {
  for (uint32_t i = 0; i < buffer_count_; ++i) {
    if (&buffers_[i] == memory.buffer) return buffers_[i];
  }
  fail(where, "%s: the tensor of %s is not one that this queue's AllocTensor gave; use its own queue", name,
       memory.buffer != nullptr ? name_of(*memory.buffer).c_str() : "no buffer");
}

void Queue::put(const LocalMemory& memory, Where where) {
  Buffer& buffer = own("EnQue", memory, where);
  // From AllocTensor, or once more from DeQue, as a result that was computed in place.
  if (buffer.state == Buffer::State::Queued) {
    fail(where, "EnQue: the tensor of %s waits in the queue already; call DeQue first", name_of(buffer).c_str());
  }
  if (buffer.state == Buffer::State::Free) {
    fail(where, "EnQue: the tensor of %s is free; AllocTensor gives one", name_of(buffer).c_str());
  }
  if (queued_ == depth_) {
    fail(where, "EnQue: the queue %s has depth %u and holds as many tensors; call DeQue first", name_of(buffer).c_str(),
         depth_);
  }
  buffer.state = Buffer::State::Queued;
  buffer.next = nullptr;
  (first_ != nullptr ? last_->next : first_) = &buffer;
  last_ = &buffer;
  ++queued_;
  take_flag("EnQue", buffer, producer_, consumer_, where);
  if (Checker* checker = cpu::checker()) checker->queued(buffer, producer_);
}

LocalMemory Queue::get(Where where) {
  if (first_ == nullptr) {
    fail(where, "DeQue: the queue %s is empty; call EnQue first",
         buffer_count_ != 0 ? name_of(buffers_[0]).c_str() : "without buffers");
  }
  Buffer& buffer = *first_;
  first_ = buffer.next;
  --queued_;
  buffer.state = Buffer::State::Dequeued;
  give_flag_back(buffer, where);
  if (Checker* checker = cpu::checker()) checker->dequeued(buffer, consumer_);
  return {buffer.data, buffer.bytes, buffer.generation, &buffer};
}

void Queue::release(const LocalMemory& memory, Where where) {
  Buffer& buffer = own("FreeTensor", memory, where);
  if (buffer.state == Buffer::State::Free || buffer.generation != memory.generation) {
    fail(where, "FreeTensor: the tensor of %s is free already; free it once", name_of(buffer).c_str());
  }
  if (buffer.state == Buffer::State::Queued) {
    fail(where, "FreeTensor: the tensor is in the queue %s; call DeQue first", name_of(buffer).c_str());
  }
  buffer.state = Buffer::State::Free;
  take_flag("FreeTensor", buffer, consumer_, producer_, where);
  if (Checker* checker = cpu::checker()) checker->released(buffer, consumer_);
}

void set_flag(uint8_t event, int32_t id, Where where) {
  const uint32_t checked = checked_id("SetFlag", id, where);
  if (Checker* checker = block(where).checker) checker->set_flag(event, checked, where);
}

void wait_flag(uint8_t event, int32_t id, Where where) {
  const uint32_t checked = checked_id("WaitFlag", id, where);
  if (Checker* checker = block(where).checker) checker->wait_flag(event, checked, where);
}

// One thread runs the instructions of a block in order. Other blocks see its stores past the caches in any order.
void pipe_barrier(pipe_t pipe, Where where) {
  if (pipe == PIPE_MTE3 || pipe == PIPE_ALL) finish_stores();
  if (Checker* checker = block(where).checker) checker->barrier(pipe, where);
}

TEventID fetch_event_id(uint8_t event, Where where) { return free_id("FetchEventID", event, where); }

TEventID allocate_event_id(uint8_t event, Where where) { return take_id("AllocEventID", event, where); }

void release_event_id(uint8_t event, TEventID id, Where where) {
  running_block(where).ids_taken[event] &= ~(1u << checked_id("ReleaseEventID", id, where));
}

}  // namespace AscendC::cpu
