// SPDX-License-Identifier: Apache-2.0
// Synchronization of cores: SyncAll, IBSet and IBWait, CrossCoreSetFlag, and the data cache through which the scalar
// unit sees device memory.
#pragma once

#include "ascendc/tensor.h"

namespace AscendC {

// How much of the data cache, and of what it keeps a copy.
enum class CacheLine : uint64_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

namespace cpu {

// Waits until all cores have come here, or all of this one's kind; the first `used` alone where it is not 0.
ASCENDC_CPU_EXPORT void sync_all(Where where, int32_t used, bool vector_only);
// A flag between blocks, by its place in memory. Setting it waits until no block still has to wait for it.
ASCENDC_CPU_EXPORT void set_block_flag(Where where, const std::byte* flag);
ASCENDC_CPU_EXPORT void wait_block_flag(Where where, const std::byte* flag);
// A flag between cores, and waiting for it, by the modes of CrossCoreSetFlag.
ASCENDC_CPU_EXPORT void cross_core_set(Where where, uint8_t mode, pipe_t pipe, uint32_t id);
ASCENDC_CPU_EXPORT void cross_core_wait(Where where, uint32_t id);
// Lines of the data cache are written to memory and forgotten: the one of an address, or all.
ASCENDC_CPU_EXPORT void clean_cache(Where where, const std::byte* address, bool all);

// The flag of a block and an event in memory that all blocks share: 32 bytes each.
inline const std::byte* block_flag(const char* name, Where where, const GlobalTensor<int32_t>& memory, int32_t index,
                                   int32_t event) {
  const int64_t count = int64_t{block(where).count} * block(where).core.sub_blocks;
  if (index < 0 || index >= count) {
    fail(where, "%s: block %d; there are %lld", name, index, static_cast<long long>(count));
  }
  const int64_t at = (count * event + index) * kBlockBytes;
  if (at + kBlockBytes > memory.memory().bytes) {
    fail(where, "%s: the workspace in device memory has %lld bytes and needs %lld: 32 for each block and event", name,
         static_cast<long long>(memory.memory().bytes), static_cast<long long>(at + kBlockBytes));
  }
  return memory.memory().data + at;
}

}  // namespace cpu

// No core continues before all cores of its kind, or of both kinds, have reached this point. Then their writes to
// device memory are visible. All run at the same time, so there may be no more cores than the device has.
template <bool isAIVOnly = true>
void SyncAll(cpu::Where where = cpu::Where::current()) {
  cpu::sync_all(where, 0, isAIVOnly);
}

// The same of the first usedCores blocks, by memory that they share: 32 bytes for each block, all 0, and as much of the
// unified buffer.
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t usedCores = 0,
             cpu::Where where = cpu::Where::current()) {
  const int64_t blocks = usedCores > 0 ? usedCores : cpu::block(where).count;
  const int64_t bytes = blocks * cpu::kBlockBytes;
  if (cpu::checker() != nullptr && (ubWorkspace.memory().bytes < bytes || gmWorkspace.memory().bytes < bytes)) {
    cpu::fail(where, "SyncAll: the workspaces have %lld and %lld bytes and need %lld each: 32 for each block",
              static_cast<long long>(gmWorkspace.memory().bytes), static_cast<long long>(ubWorkspace.memory().bytes),
              static_cast<long long>(bytes));
  }
  cpu::sync_all(where, usedCores, isAIVOnly);
}

// CrossCoreSetFlag signals to other cores that the pipe has reached this point, and CrossCoreWaitFlag waits for it:
// mode 0 for all cores of a kind, 1 for the vector cores of a block, 2 from the cube core to its block's vector cores
// and from all of them to it. A flag counts how often it was set, up to 15.
template <uint8_t modeId, pipe_t pipe>
void CrossCoreSetFlag(uint16_t flagId, cpu::Where where = cpu::Where::current()) {
  static_assert(modeId <= 2, "CrossCoreSetFlag: Atlas A2 has the modes 0, 1 and 2");
  static_assert(pipe != PIPE_S && pipe != PIPE_ALL, "CrossCoreSetFlag: one pipe, and not PIPE_S");
  cpu::needs("CrossCoreSetFlag", where);
  cpu::cross_core_set(where, modeId, pipe, flagId % 16);
}
template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t flagId, cpu::Where where = cpu::Where::current()) {
  cpu::needs("CrossCoreWaitFlag", where);
  cpu::cross_core_wait(where, flagId % 16);
}

// The older names: a wait without a mode, and the address of the flags, which are the runtime's.
inline void WaitEvent(uint16_t flagId, cpu::Where where = cpu::Where::current()) { CrossCoreWaitFlag(flagId, where); }
inline void SetSyncBaseAddr(uint64_t /*address*/) {}

// IBWait waits until a block has called IBSet with its own number and the same event; then the flag may be set again.
template <bool isAIVOnly = true>
void IBSet(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& /*ubWorkspace*/, int32_t blockIdx,
           int32_t eventID, cpu::Where where = cpu::Where::current()) {
  cpu::set_block_flag(where, cpu::block_flag("IBSet", where, gmWorkspace, blockIdx, eventID));
}

template <bool isAIVOnly = true>
void IBWait(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& /*ubWorkspace*/, int32_t blockIdx,
            int32_t eventID, cpu::Where where = cpu::Where::current()) {
  cpu::wait_block_flag(where, cpu::block_flag("IBWait", where, gmWorkspace, blockIdx, eventID));
}

enum class PipeMode : uint8_t { SCALAR_MODE, MTE3_MODE, MAX };

// Blocks of one group wait until all blocks of another have arrived, by memory that they share: 512 bytes for each that
// waits, all 0. A block that arrives again waits until those before have seen it.
template <PipeMode mode>
class GroupBarrier {
  static_assert(mode == PipeMode::MTE3_MODE, "GroupBarrier: the device has PipeMode::MTE3_MODE only");
  static constexpr uint32_t kStep = 512;

 public:
  GroupBarrier(GM_ADDR workspace, uint32_t arriveSize, uint32_t waitSize, cpu::Where where = cpu::Where::current())
      : memory_(reinterpret_cast<const std::byte*>(workspace)), arrive_size_(arriveSize), wait_size_(waitSize) {
    if (reinterpret_cast<uintptr_t>(workspace) % kStep != 0) {
      cpu::fail(where, "GroupBarrier: its workspace begins at no multiple of 512 bytes");
    }
    if (arriveSize > kStep) cpu::fail(where, "GroupBarrier: %u blocks arrive; there are at most 512", arriveSize);
    if (cpu::checker() == nullptr) return;
    cpu::GlobalMemory all{const_cast<std::byte*>(memory_), memory_, int64_t{waitSize} * kStep, 0, 1};
    cpu::check_global("GroupBarrier", where, PIPE_S, cpu::Use::Read, all, 0, all.bytes);
  }

  void Arrive(uint32_t arriveIndex, cpu::Where where = cpu::Where::current()) {
    check("Arrive", where, arriveIndex, arrive_size_);
    for (uint32_t waiter = 0; waiter < wait_size_; ++waiter) {
      cpu::set_block_flag(where, memory_ + size_t{waiter} * kStep + arriveIndex);
    }
  }
  void Wait(uint32_t waitIndex, cpu::Where where = cpu::Where::current()) {
    check("Wait", where, waitIndex, wait_size_);
    for (uint32_t arrived = 0; arrived < arrive_size_; ++arrived) {
      cpu::wait_block_flag(where, memory_ + size_t{waitIndex} * kStep + arrived);
    }
  }

 private:
  static void check(const char* name, cpu::Where where, uint32_t index, uint32_t size) {
    if (index >= size) cpu::fail(where, "GroupBarrier: %s(%u) of a group of %u blocks", name, index, size);
  }

  const std::byte* memory_;
  uint32_t arrive_size_, wait_size_;
};

// What the scalar unit has written to device memory is there for the other units and blocks, and it reads anew what
// they have written.
template <class T, CacheLine line, DcciDst destination = DcciDst::CACHELINE_ALL>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, cpu::Where where = cpu::Where::current()) {
  cpu::clean_cache(where, tensor.memory().data, line == CacheLine::ENTIRE_DATA_CACHE);
}

// A hint alone: what the data cache has is read no faster here.
template <class T>
void DataCachePreload(const GlobalTensor<uint64_t>& /*tensor*/, T /*offset in bytes*/) {}

}  // namespace AscendC
