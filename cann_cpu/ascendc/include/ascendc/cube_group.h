// SPDX-License-Identifier: Apache-2.0
// Cube cores in groups: vector cores post messages into queues in device memory, and a group's cube cores serve them.
//
// A cube core has the queues of some vector cores, one beside the other, each of four places. It serves the first
// places of all queues, in order, then the second ones. Cores wait for each other by a flag for each place.
#pragma once

#include "ascendc/block_sync.h"
#include "ascendc/cores.h"

namespace AscendC {

enum class CubeMsgState : uint8_t { FREE, VALID, QUIT, FAKE };

// A message begins with it.
struct CubeGroupMsgHead {
  CubeMsgState msgState = CubeMsgState::FREE;
  uint8_t aivID = 0;  // among the queues of its cube core
};

// To choose a function by a number: Type exists where the numbers are the same.
template <int32_t ActualFuncId, int32_t ExpectFuncId>
struct IsEqual {};
template <int32_t FuncId>
struct IsEqual<FuncId, FuncId> {
  using Type = void;
};

namespace cpu {

// A flag by its place in memory, from one core to another: the pipe has come so far. Posting it again waits until the
// other has taken it.
ASCENDC_CPU_EXPORT void post(const char* name, Where where, pipe_t pipe, const void* flag);
ASCENDC_CPU_EXPORT void take(const char* name, Where where, const void* flag);

}  // namespace cpu

// Where the queues of the groups begin in device memory, which is all 0.
class KfcWorkspace {
 public:
  explicit KfcWorkspace(GM_ADDR workspace) : workspace_(workspace) {}

  void UpdateKfcWorkspace(uint32_t offset) { workspace_ += offset; }
  GM_ADDR GetKfcWorkspace() { return workspace_; }

 private:
  GM_ADDR workspace_;
};

// One core's view of a group: the core is a vector core after AssignQueue, or a cube core that serves.
template <class CubeMsgType>
class CubeResGroupHandle {
  static_assert(sizeof(CubeMsgType) % 64 == 0, "CubeResGroupHandle: a message has a multiple of 64 bytes");
  static constexpr uint32_t kDepth = 4, kMaxQueues = 64;

 public:
  CubeResGroupHandle() = default;
  // The event is the device's alone.
  CubeResGroupHandle(GM_ADDR workspace, uint8_t blockStart, uint8_t blockSize, uint8_t msgQueueSize,
                     uint8_t /*evtIDIn*/, cpu::Where where = cpu::Where::current())
      : messages_(reinterpret_cast<CubeMsgType*>(workspace)), queues_(msgQueueSize), cubes_(blockSize / 2) {
    const cpu::Block& block = cpu::block(where);
    if (!block.type.known) cpu::is_mixed();
    if (cpu::cores_of(block.type.name).cube == 0 || cpu::cores_of(block.type.name).vectors == 0) {
      cpu::fail(where, "CubeResGroupHandle: the kernel has one kind of core; its type is KERNEL_TYPE_MIX_AIC_1_2");
    }
    if (blockStart % 2 != 0 || blockSize % 2 != 0 || blockSize == 0) {
      cpu::fail(where, "CubeResGroupHandle: blockStart %u, blockSize %u; both count cube cores twice", blockStart,
                blockSize);
    }
    if (uint32_t{blockStart} + blockSize > 2 * block.count) {
      cpu::fail(where, "CubeResGroupHandle: the cube cores %u to %u; the launch has %u", blockStart / 2,
                (blockStart + blockSize) / 2 - 1, block.count);
    }
    if (queues_ > kMaxQueues) cpu::fail(where, "CubeResGroupHandle: %u queues; there are at most 64", queues_);
    per_cube_ = (queues_ + cubes_ - 1) / cubes_;
    if (per_cube_ == 0 || queues_ <= (cubes_ - 1) * per_cube_) {
      cpu::fail(where, "CubeResGroupHandle: %u queues leave the last of %u cube cores without one", queues_, cubes_);
    }
    if (cpu::checker() != nullptr) {
      const auto* memory = reinterpret_cast<const std::byte*>(workspace);
      cpu::GlobalMemory all{const_cast<std::byte*>(memory), memory, int64_t{bytes()}, 0, 1};
      cpu::check_global("CubeResGroupHandle", where, PIPE_S, cpu::Use::Read, all, 0, all.bytes);
    }
    if (block.core.cube && block.core.block >= blockStart / 2u && block.core.block < blockStart / 2u + cubes_) {
      choose(block.core.block - blockStart / 2u);
    }
  }

  // Called by a vector core. Each has its own queue.
  void AssignQueue(uint8_t queueIdIn, cpu::Where where = cpu::Where::current()) {
    if (queueIdIn >= queues_) cpu::fail(where, "AssignQueue(%u): the group has %u queues", queueIdIn, queues_);
    if (cpu::block(where).core.cube) return;
    choose(queueIdIn / per_cube_);
    column_ = queueIdIn % per_cube_;
    assigned_ = true;
  }

  // The next place of the queue, when its message has been served.
  template <PipeMode pipeMode = PipeMode::SCALAR_MODE>
  __gm__ CubeMsgType* AllocMessage(cpu::Where where = cpu::Where::current()) {
    if (cpu::block(where).core.cube) return first_;
    if (!assigned_) cpu::fail(where, "AllocMessage: the core has no queue; call AssignQueue first");
    const uint32_t row = posted_ % kDepth;
    CubeMsgType* place = first_ + row * per_cube_ + column_;
    await("AllocMessage", where, row);
    if (state(place) != CubeMsgState::FREE) {
      cpu::fail(where,
                "AllocMessage: the place is not free; the workspace was not all 0, or another core has the queue");
    }
    ++posted_;
    return place;
  }

  // The cube core may read the data at a pointer as far as the pipe that posts the message has progressed.
  template <PipeMode pipeMode = PipeMode::SCALAR_MODE>
  uint16_t PostMessage(__gm__ CubeMsgType* msg, CubeMsgType& msgInput, cpu::Where where = cpu::Where::current()) {
    static_assert(pipeMode != PipeMode::MAX, "PostMessage: SCALAR_MODE or MTE3_MODE");
    if (cpu::block(where).core.cube) return offset(msg);
    if (msgInput.head.msgState == CubeMsgState::FREE) {
      cpu::fail(where, "PostMessage: its head says CubeMsgState::FREE, and no cube core would serve it");
    }
    *msg = msgInput;
    return post("PostMessage", where, msg, pipeMode == PipeMode::MTE3_MODE ? PIPE_MTE3 : PIPE_S);
  }
  // In place of a message that the cube core skips, because one before it says the same.
  uint16_t PostFakeMsg(__gm__ CubeMsgType* msg, cpu::Where where = cpu::Where::current()) {
    if (cpu::block(where).core.cube) return offset(msg);
    msg->head.msgState = CubeMsgState::FAKE;
    return post("PostFakeMsg", where, msg, PIPE_S);
  }
  // The last message of a queue. Cube cores end when all their queues have.
  void SetQuit(__gm__ CubeMsgType* msg, cpu::Where where = cpu::Where::current()) {
    if (cpu::block(where).core.cube) return;
    msg->head = {CubeMsgState::QUIT, static_cast<uint8_t>(column_)};
    post("SetQuit", where, msg, PIPE_S);
  }

  // Whether the message is served. It waits for that even where the device would say that it is not yet: cores here
  // may begin only when others wait.
  template <bool sync = true>
  bool Wait(uint16_t offset, cpu::Where where = cpu::Where::current()) {
    if (cpu::block(where).core.cube) return true;
    if (!assigned_) cpu::fail(where, "Wait: the core has no queue; call AssignQueue first");
    await("Wait", where, offset / per_cube_);
    return true;
  }

  // In a callback: the message is served, and its place may be used again. Of another queue's message it waits until
  // it is there.
  uint16_t FreeMessage(__gm__ CubeMsgType* msg, cpu::Where where = cpu::Where::current()) {
    if (!cpu::block(where).core.cube) return offset(msg);
    if (msg != served_) cpu::take("FreeMessage", where, msg);
    return free(where, msg);
  }
  uint16_t FreeMessage(__gm__ CubeMsgType* msg, CubeMsgState waitState, cpu::Where where = cpu::Where::current()) {
    if (!cpu::block(where).core.cube) return offset(msg);
    if (msg != served_) cpu::take("FreeMessage", where, msg);
    if (state(msg) != waitState) {
      cpu::fail(where, "FreeMessage waits for CubeMsgState %d; the message has %d", static_cast<int>(waitState),
                static_cast<int>(state(msg)));
    }
    return free(where, msg);
  }
  // Called in a callback: this many of the next messages, of other queues, are served with the current one.
  void SetSkipMsg(uint8_t skipCnt, cpu::Where where = cpu::Where::current()) {
    if (!cpu::block(where).core.cube) return;
    column_ += skipCnt;
    if (column_ >= own_) {
      cpu::fail(where, "SetSkipMsg(%u): only %u queues follow the message", skipCnt, own_ - 1 - (column_ - skipCnt));
    }
  }

 private:
  template <int groupID, class MatmulApiType, template <class, class> class CallBack, class Type>
  friend CubeResGroupHandle<Type> CreateCubeResGroup(KfcWorkspace& desc, uint8_t blockStart, uint8_t blockSize,
                                                     uint8_t msgQueueSize, GM_ADDR tiling, cpu::Where where);

  static CubeMsgState state(const CubeMsgType* place) { return place->head.msgState; }
  // The flag of a message lies at its place. The flag that it was served lies one byte further.
  static const void* when_served(const CubeMsgType* place) { return reinterpret_cast<const std::byte*>(place) + 1; }

  uint32_t bytes() const { return per_cube_ * cubes_ * kDepth * static_cast<uint32_t>(sizeof(CubeMsgType)); }
  uint16_t offset(const CubeMsgType* msg) const {
    return static_cast<uint16_t>(msg - (first_ + (assigned_ ? column_ : 0)));
  }

  // The queues of one of the group's cube cores.
  void choose(uint32_t cube) {
    first_ = messages_ + cube * per_cube_ * kDepth;
    own_ = cube + 1 < cubes_ ? per_cube_ : queues_ - (cubes_ - 1) * per_cube_;
  }

  uint16_t post(const char* name, cpu::Where where, CubeMsgType* msg, pipe_t pipe) {
    pending_ |= 1u << offset(msg) / per_cube_;
    cpu::post(name, where, pipe, msg);
    return offset(msg);
  }

  // Called by a vector core: waits until its message in the row is served.
  void await(const char* name, cpu::Where where, uint32_t row) {
    if ((pending_ >> row & 1) == 0) return;
    cpu::take(name, where, when_served(first_ + row * per_cube_ + column_));
    pending_ &= ~(1u << row);
  }

  uint16_t free(cpu::Where where, CubeMsgType* msg) {
    msg->head.msgState = CubeMsgState::FREE;
    cpu::post("FreeMessage", where, PIPE_S, when_served(msg));
    return offset(msg);
  }

  // Calls serve(message) for each message, until all queues have quit.
  template <class Serve>
  void serve(cpu::Where where, const Serve& serve) {
    uint64_t running = ~uint64_t{0} >> (kMaxQueues - own_);
    for (uint32_t row = 0; running != 0; row = (row + 1) % kDepth) {
      for (column_ = 0; column_ < own_; ++column_) {
        if ((running >> column_ & 1) == 0) continue;
        CubeMsgType* message = first_ + row * per_cube_ + column_;
        cpu::take("CreateCubeResGroup", where, message);
        if (state(message) == CubeMsgState::QUIT) {
          running &= ~(uint64_t{1} << column_);
        } else {
          served_ = message;
          serve(message);
        }
      }
    }
  }

  CubeMsgType* messages_ = nullptr;  // of the group
  CubeMsgType* first_ = nullptr;     // of the cube core
  CubeMsgType* served_ = nullptr;    // what the cube core works on
  uint32_t queues_ = 0, cubes_ = 0, per_cube_ = 0, own_ = 0;
  uint32_t column_ = 0;   // the queue of a vector core, or that the cube core serves
  uint32_t posted_ = 0;   // by the vector core
  uint32_t pending_ = 0;  // a bit for each row whose message it has posted and not seen served
  bool assigned_ = false;
};

// Vector cores have the group's handle at once; its cube cores when they have served all that was posted.
template <int groupID, class MatmulApiType, template <class, class> class CallBack, class CubeMsgType>
CubeResGroupHandle<CubeMsgType> CreateCubeResGroup(KfcWorkspace& desc, uint8_t blockStart, uint8_t blockSize,
                                                   uint8_t msgQueueSize, GM_ADDR tiling,
                                                   cpu::Where where = cpu::Where::current()) {
  CubeResGroupHandle<CubeMsgType> handle(desc.GetKfcWorkspace(), blockStart, blockSize, msgQueueSize, 0, where);
  desc.UpdateKfcWorkspace(handle.bytes());
  if (cpu::block(where).core.cube && handle.first_ != nullptr) {
    MatmulApiType object;
    CallBack<MatmulApiType, CubeMsgType> callback;
    callback.Init(callback, object, tiling);
    handle.serve(where, [&](CubeMsgType* message) { callback.Call(object, message, handle); });
  }
  return handle;
}

}  // namespace AscendC
