// SPDX-License-Identifier: Apache-2.0
// What TPipe, queues and flags do: divide the unified buffer, hand buffers from pipe to pipe.
#include "ascendc/queue.h"

#include <bit>

#include "checker.h"
#include "running_block.h"

namespace AscendC::cpu {
namespace {

constexpr uint32_t kUsableBytes = kUnifiedBufferBytes - kReservedBytes;

uint32_t checked_id(const char* name, int32_t id, Where where) {
  if (id < 0 || id >= static_cast<int32_t>(kEventIds)) fail(where, "%s: event id %d; there are 0 to 7", name, id);
  return static_cast<uint32_t>(id);
}

TEventID free_id(const char* name, uint8_t event, Where where) {
  const RunningBlock& block = running_block(where);
  const auto id = std::countr_one(static_cast<uint32_t>(block.flags_set[event] | block.ids_taken[event]));
  if (id >= static_cast<int>(kEventIds)) fail(where, "%s: all 8 ids of this event are in use", name);
  return static_cast<TEventID>(id);
}

}  // namespace

Buffer* reserve(uint32_t count, uint32_t bytes, Where where) {
  RunningBlock& block = running_block(where);
  const uint64_t rounded = (uint64_t{bytes} + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  const uint64_t used = block.bytes_used + count * rounded;
  if (used > kUsableBytes) {
    fail(where,
         "InitBuffer: %u buffers of %u bytes, with %u bytes in use already, exceed the unified buffer; a kernel has %u "
         "bytes of it",
         count, bytes, block.bytes_used, kUsableBytes);
  }
  std::vector<Buffer>& buffers = block.buffers.emplace_back(count);
  for (uint32_t i = 0; i < count; ++i) {
    buffers[i].data = block.unified_buffer + block.bytes_used + i * rounded;
    buffers[i].bytes = static_cast<uint32_t>(rounded);
    buffers[i].number = block.buffer_count++;
  }
  block.bytes_used = static_cast<uint32_t>(used);
  return buffers.data();
}

void Queue::init(uint32_t buffers, uint32_t bytes, Where where) {
  if (buffers == 0 || bytes == 0) fail(where, "InitBuffer: a queue needs at least one buffer of at least one byte");
  buffers_ = reserve(buffers, bytes, where);
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
    Buffer& buffer = buffers_[i];
    if (buffer.state != Buffer::State::Free) continue;
    buffer.state = Buffer::State::Allocated;
    buffer.taken = where;
    ++buffer.generation;
    if (Checker* checker = cpu::checker()) checker->allocated(buffer, producer_);
    return {buffer.data, buffer.bytes, buffer.generation, &buffer};
  }
  if (buffer_count_ == 0) fail(where, "AllocTensor: the queue has no buffers; call TPipe::InitBuffer first");
  fail(where, "AllocTensor: none of the queue's %u buffers is free, the first was taken in line %u; call FreeTensor",
       buffer_count_, buffers_[0].taken.line());
}

Buffer& Queue::own(const char* name, const LocalMemory& memory, Where where) const {
  for (uint32_t i = 0; i < buffer_count_; ++i) {
    if (&buffers_[i] == memory.buffer) return buffers_[i];
  }
  fail(where, "%s: the tensor is not one that this queue's AllocTensor gave", name);
}

void Queue::put(const LocalMemory& memory, Where where) {
  Buffer& buffer = own("EnQue", memory, where);
  if (buffer.state != Buffer::State::Allocated) {
    fail(where, "EnQue: the tensor is not fresh from AllocTensor, which gave it in line %u", buffer.taken.line());
  }
  if (queued_ == depth_) {
    fail(where, "EnQue: the queue has depth %u and holds as many tensors; call DeQue first", depth_);
  }
  buffer.state = Buffer::State::Queued;
  buffer.next = nullptr;
  (first_ != nullptr ? last_->next : first_) = &buffer;
  last_ = &buffer;
  ++queued_;
  if (Checker* checker = cpu::checker()) checker->queued(buffer, producer_);
}

LocalMemory Queue::get(Where where) {
  if (first_ == nullptr) fail(where, "DeQue: the queue is empty; call EnQue first");
  Buffer& buffer = *first_;
  first_ = buffer.next;
  --queued_;
  buffer.state = Buffer::State::Dequeued;
  if (Checker* checker = cpu::checker()) checker->dequeued(buffer, consumer_);
  return {buffer.data, buffer.bytes, buffer.generation, &buffer};
}

void Queue::release(const LocalMemory& memory, Where where) {
  Buffer& buffer = own("FreeTensor", memory, where);
  if (buffer.state == Buffer::State::Free || buffer.generation != memory.generation) {
    fail(where, "FreeTensor: the tensor is free already");
  }
  if (buffer.state == Buffer::State::Queued) fail(where, "FreeTensor: the tensor is in the queue; call DeQue first");
  buffer.state = Buffer::State::Free;
  if (Checker* checker = cpu::checker()) checker->released(buffer, consumer_);
}

void set_flag(uint8_t event, int32_t id, Where where) {
  RunningBlock& block = running_block(where);
  const uint32_t checked = checked_id("SetFlag", id, where);
  if (block.checker != nullptr) block.checker->set_flag(event, checked, where);
  block.flags_set[event] |= 1u << checked;
}

void wait_flag(uint8_t event, int32_t id, Where where) {
  RunningBlock& block = running_block(where);
  const uint32_t checked = checked_id("WaitFlag", id, where);
  if (block.checker != nullptr) block.checker->wait_flag(event, checked, where);
  block.flags_set[event] &= ~(1u << checked);
}

// One thread runs the instructions of a block in order, so that only the checker has to know of a barrier.
void pipe_barrier(pipe_t pipe, Where where) {
  if (Checker* checker = block(where).checker) checker->barrier(pipe, where);
}

TEventID fetch_event_id(uint8_t event, Where where) { return free_id("FetchEventID", event, where); }

TEventID allocate_event_id(uint8_t event, Where where) {
  const TEventID id = free_id("AllocEventID", event, where);
  running_block(where).ids_taken[event] |= 1u << id;
  return id;
}

void release_event_id(uint8_t event, TEventID id, Where where) {
  running_block(where).ids_taken[event] &= ~(1u << checked_id("ReleaseEventID", id, where));
}

}  // namespace AscendC::cpu
