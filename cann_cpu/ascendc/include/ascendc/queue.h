// SPDX-License-Identifier: Apache-2.0
// TPipe, which divides a core's memories; queues of buffers between two pipes; flags and barriers.
#pragma once

#include "ascendc/tensor.h"

namespace AscendC {

namespace cpu {

// A part of a memory that is divided into buffers.
struct Region {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t used = 0;  // up to here, from the start of the memory
  Hardware hardware = Hardware::UB;
};

// The pipe that fills a buffer of a position, and the one that empties it.
constexpr pipe_t producer(TPosition position) {
  switch (GetPhyType(position)) {
    case Hardware::L1:
      return PIPE_MTE2;
    case Hardware::L0A:
    case Hardware::L0B:
    case Hardware::BIAS:
      return PIPE_MTE1;
    case Hardware::L0C:
      return PIPE_M;
    case Hardware::FIXBUF:
      return PIPE_FIX;
    default:
      return position == TPosition::VECIN ? PIPE_MTE2 : PIPE_V;
  }
}
constexpr pipe_t consumer(TPosition position) {
  switch (GetPhyType(position)) {
    case Hardware::L1:
      return PIPE_MTE1;
    case Hardware::L0A:
    case Hardware::L0B:
    case Hardware::BIAS:
      return PIPE_M;
    case Hardware::L0C:
    case Hardware::FIXBUF:
      return PIPE_FIX;
    default:
      return position == TPosition::VECOUT ? PIPE_MTE3 : PIPE_V;
  }
}

// The part of a queue that does not depend on types. EnQue hands a buffer from the producing pipe to the consuming one,
// which waits for it in DeQue; FreeTensor hands it back, and the producing pipe waits for that in AllocTensor.
class ASCENDC_CPU_EXPORT Queue {
 public:
  constexpr Queue(TPosition from, TPosition to, uint32_t depth)
      : hardware_(GetPhyType(from)), producer_(producer(from)), consumer_(consumer(to)), depth_(depth) {}

  void init(uint32_t buffers, uint32_t bytes, Where where, Region* region);
  LocalMemory allocate(Where where);  // the buffers in turn
  void put(const LocalMemory& memory, Where where);
  LocalMemory get(Where where);
  void release(const LocalMemory& memory, Where where);

  uint32_t queued() const { return queued_; }
  bool has_free() const;
  uint32_t depth() const { return depth_; }

 private:
  Buffer& own(const char* name, const LocalMemory& memory, Where where) const;

  Hardware hardware_;
  pipe_t producer_;
  pipe_t consumer_;
  uint32_t depth_;
  Buffer* buffers_ = nullptr;
  uint32_t buffer_count_ = 0;
  uint32_t next_ = 0;        // the buffer to be handed out
  Buffer* first_ = nullptr;  // of those that wait in the queue
  Buffer* last_ = nullptr;
  uint32_t queued_ = 0;
};

// Buffers next to each other, each of `bytes` rounded up to whole blocks of 32 bytes; of the region, or of the whole
// memory.
ASCENDC_CPU_EXPORT Buffer* reserve(uint32_t buffers, uint32_t bytes, Hardware hardware, Where where,
                                   Region* region = nullptr);
ASCENDC_CPU_EXPORT Region reserve_region(uint32_t bytes, Hardware hardware, Where where, Region* outer);
// Everything is free again: nothing that comes after begins before all that came before has ended.
ASCENDC_CPU_EXPORT void reset_buffers(Where where, Region* region = nullptr);

ASCENDC_CPU_EXPORT void set_flag(uint8_t event, int32_t id, Where where);
ASCENDC_CPU_EXPORT void wait_flag(uint8_t event, int32_t id, Where where);
ASCENDC_CPU_EXPORT void pipe_barrier(pipe_t pipe, Where where);
ASCENDC_CPU_EXPORT TEventID fetch_event_id(uint8_t event, Where where);
ASCENDC_CPU_EXPORT TEventID allocate_event_id(uint8_t event, Where where);
ASCENDC_CPU_EXPORT void release_event_id(uint8_t event, TEventID id, Where where);

class BufferPool;

}  // namespace cpu

// A queue of buffers that come from one position and go to another; TQueBind<VECIN, VECOUT> is filled from device
// memory and goes to device memory without the vector unit.
//
// With a depth of 0 the queue holds one tensor, which AllocTensor and DeQue give in the form that writes to their
// argument.
template <TPosition from, TPosition to, int32_t depth, int32_t mask = 0>
class TQueBind {
  static_assert(mask == 0, "queues of FRACTAL_NZ are not supported on the CPU");

 public:
  template <class T>
  LocalTensor<T> AllocTensor(cpu::Where where = cpu::Where::current()) {
    return LocalTensor<T>(queue_.allocate(where));
  }
  template <class T>
  void AllocTensor(LocalTensor<T>& tensor, cpu::Where where = cpu::Where::current()) {
    tensor = AllocTensor<T>(where);
  }
  template <class T>
  bool EnQue(const LocalTensor<T>& tensor, cpu::Where where = cpu::Where::current()) {
    queue_.put(tensor.memory(), where);
    return true;
  }
  template <class T>
  LocalTensor<T> DeQue(cpu::Where where = cpu::Where::current()) {
    return LocalTensor<T>(queue_.get(where));
  }
  template <class T>
  void DeQue(LocalTensor<T>& tensor, cpu::Where where = cpu::Where::current()) {
    tensor = DeQue<T>(where);
  }
  template <class T>
  void FreeTensor(const LocalTensor<T>& tensor, cpu::Where where = cpu::Where::current()) {
    queue_.release(tensor.memory(), where);
  }

  bool VacantInQue() const { return queue_.queued() < queue_.depth(); }
  bool HasTensorInQue() const { return queue_.queued() != 0; }
  int32_t GetTensorCountInQue() const { return queue_.queued(); }
  bool HasIdleBuffer() const { return queue_.has_free(); }

 private:
  friend class cpu::BufferPool;

  static_assert(GetPhyType(from) == GetPhyType(to), "a queue's positions are of one memory");
  static constexpr Hardware kHardware = GetPhyType(from);
  cpu::Queue queue_{from, to, depth > 0 ? depth : 1};
};

// VECIN: filled from device memory, read by the vector unit. VECOUT: the other way. VECCALC: within the vector unit.
// A1, B1, C1, A2, B2, C2, CO1: the stations of a matrix on its way through the matrix unit.
template <TPosition position, int32_t depth, int32_t mask = 0>
using TQue = TQueBind<position, position, depth, mask>;

// Memory for intermediate results. Nothing orders what pipes do to it but flags and barriers.
template <TPosition position = TPosition::LCM>
class TBuf {
 public:
  template <class T>
  LocalTensor<T> Get(cpu::Where where = cpu::Where::current()) {
    return LocalTensor<T>(memory(where));
  }
  template <class T>
  LocalTensor<T> Get(uint32_t elements, cpu::Where where = cpu::Where::current()) {
    return GetWithOffset<T>(elements, 0, where);
  }
  template <class T>
  LocalTensor<T> GetWithOffset(uint32_t elements, uint32_t byte_offset, cpu::Where where = cpu::Where::current()) {
    cpu::LocalMemory part = memory(where);
    const int64_t bytes = cpu::bytes_of<T>(elements);
    if (byte_offset + bytes > part.bytes) {
      cpu::fail(where, "TBuf: bytes %u to %lld are wanted of a buffer of %lld bytes", byte_offset,
                static_cast<long long>(byte_offset + bytes), static_cast<long long>(part.bytes));
    }
    part.data += byte_offset;
    part.bytes = bytes;
    return LocalTensor<T>(part);
  }

  // As a queue has them; the memory is always there.
  template <class T>
  LocalTensor<T> AllocTensor(cpu::Where where = cpu::Where::current()) {
    return Get<T>(where);
  }
  template <class T>
  void FreeTensor(const LocalTensor<T>& /*tensor*/) {}

 private:
  friend class cpu::BufferPool;

  cpu::LocalMemory memory(cpu::Where where) const {
    if (buffer_ == nullptr) cpu::fail(where, "TBuf: it has no memory; call TPipe::InitBuffer first");
    return {buffer_->data, buffer_->bytes, buffer_->generation, buffer_};
  }

  cpu::Buffer* buffer_ = nullptr;
};

// What gives queues and TBufs their memory.
class cpu::BufferPool {
 public:
  template <class Queue>
  bool InitBuffer(Queue& queue, uint8_t buffers, uint32_t bytes, cpu::Where where = cpu::Where::current()) {
    if constexpr (Queue::kHardware == Hardware::GM) {
      // Device memory, where a core has no CO2: the queue stays without buffers, as on the chip.
      if (cpu::checker() != nullptr) {
        cpu::fail(where, "InitBuffer: this chip has no memory of cores for the queue's position; leave the queue out");
      }
      return false;
    }
    queue.queue_.init(buffers, bytes, where, region_);
    return true;
  }
  template <TPosition position>
  bool InitBuffer(TBuf<position>& buffer, uint32_t bytes, cpu::Where where = cpu::Where::current()) {
    buffer.buffer_ = cpu::reserve(1, bytes, GetPhyType(position), where, region_);
    return true;
  }

  // Turns a part of this pool's memory into a separate pool. `shared` gives both pools the same part, to use in turns.
  template <class Pool>
  bool InitBufPool(Pool& pool, uint32_t bytes, cpu::Where where = cpu::Where::current()) {
    pool.own_ = cpu::reserve_region(bytes, GetPhyType(Pool::kPosition), where, region_);
    pool.region_ = &pool.own_;
    return true;
  }
  template <class Pool, class Other>
  bool InitBufPool(Pool& pool, uint32_t bytes, Other& shared, cpu::Where where = cpu::Where::current()) {
    if (bytes > shared.own_.end - shared.own_.begin) {
      cpu::fail(where, "InitBufPool: %u bytes of a pool of %u bytes", bytes, shared.own_.end - shared.own_.begin);
    }
    pool.own_ = {shared.own_.begin, shared.own_.begin + bytes, shared.own_.begin, shared.own_.hardware};
    pool.region_ = &pool.own_;
    return true;
  }

  void Reset(cpu::Where where = cpu::Where::current()) { cpu::reset_buffers(where, region_); }

 protected:
  cpu::Region own_;
  cpu::Region* region_ = nullptr;  // null: the whole memory
};

// Memory of a pipe, or of another pool, that is divided apart from the rest; Reset makes all of it free.
template <TPosition position, uint32_t buffers = 4>
class TBufPool : public cpu::BufferPool {
  friend class cpu::BufferPool;
  static constexpr TPosition kPosition = position;
};

class TPipe : public cpu::BufferPool {
 public:
  explicit TPipe(cpu::Where where = cpu::Where::current()) : block_(cpu::block(where)) { block_.pipe = this; }
  ~TPipe() { block_.pipe = nullptr; }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  void Init() {}
  void Destroy(cpu::Where where = cpu::Where::current()) { Reset(where); }

  // A free id. It stays free for others.
  TEventID FetchEventID(HardEvent event, cpu::Where where = cpu::Where::current()) {
    return cpu::fetch_event_id(static_cast<uint8_t>(event), where);
  }
  template <HardEvent event>
  TEventID FetchEventID(cpu::Where where = cpu::Where::current()) {
    return FetchEventID(event, where);
  }

  // An id that FetchEventID and AllocEventID do not return again until ReleaseEventID.
  template <HardEvent event>
  TEventID AllocEventID(cpu::Where where = cpu::Where::current()) {
    return cpu::allocate_event_id(static_cast<uint8_t>(event), where);
  }
  template <HardEvent event>
  void ReleaseEventID(TEventID id, cpu::Where where = cpu::Where::current()) {
    cpu::release_event_id(static_cast<uint8_t>(event), id, where);
  }

 private:
  cpu::Block& block_;
};

}  // namespace AscendC

// The kernel's TPipe. The function is in the global namespace, and also in AscendC.
inline AscendC::TPipe* GetTPipePtr(AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  AscendC::TPipe* pipe = AscendC::cpu::block(where).pipe;
  if (pipe == nullptr) AscendC::cpu::fail(where, "GetTPipePtr: the kernel has made no TPipe");
  return pipe;
}

namespace AscendC {

using ::GetTPipePtr;

template <HardEvent event>
void SetFlag(int32_t id, cpu::Where where = cpu::Where::current()) {
  cpu::set_flag(static_cast<uint8_t>(event), id, where);
}

template <HardEvent event>
void WaitFlag(int32_t id, cpu::Where where = cpu::Where::current()) {
  cpu::wait_flag(static_cast<uint8_t>(event), id, where);
}

// PIPE_ALL: nothing that comes after begins before all that came before has ended. One pipe: the same of that pipe's
// instructions; PIPE_S is not allowed.
template <pipe_t pipe>
void PipeBarrier(cpu::Where where = cpu::Where::current()) {
  cpu::pipe_barrier(pipe, where);
}

}  // namespace AscendC
