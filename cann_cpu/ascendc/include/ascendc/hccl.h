// SPDX-License-Identifier: Apache-2.0
// Collectives in kernels: a core prepares them, says when each may run, and waits for it. A communicator of libhccl
// runs them in a server's thread, on the memory that the kernel names.
#pragma once

#include "ascendc/cores.h"
#include "ascendc/hccl_names.h"

namespace AscendC {

using HcclHandle = int8_t;
constexpr HcclHandle INVALID_HANDLE_ID = -1;
constexpr int32_t HCCL_SUCCESS = 0;
constexpr int32_t HCCL_FAILED = -1;

enum HcclServerType { HCCL_SERVER_TYPE_AICPU = 0, HCCL_SERVER_TYPE_CCU = 5, HCCL_SERVER_TYPE_END };
enum class CoreType : uint8_t { DEFAULT, ON_AIV, ON_AIC };
// The core that passes the collectives to the server.
struct HcclServerConfig {
  CoreType type;
  int64_t blockId;
};
inline constexpr HcclServerConfig DEFAULT_CFG = {CoreType::DEFAULT, 0};

namespace cpu {

class CollectiveServer;

// The arguments of a Prepare function.
struct Collective {
  HcclCMDType command;
  GM_ADDR send;
  GM_ADDR receive;
  uint64_t count, stride;  // 0: blocks are contiguous
  HcclDataType type;
  HcclReduceOp op;
  uint8_t repeat;
  // For AlltoAllV, one value per rank.
  const uint64_t *sends = nullptr, *send_offsets = nullptr, *receives = nullptr, *receive_offsets = nullptr;
};

// One core's view of a communicator.
class ASCENDC_CPU_EXPORT HcclClient {
 public:
  // tiling may be null: the oldest form.
  void init(Where where, HcclServerType server, HcclServerConfig config, GM_ADDR context, const void* tiling);
  void set_tiling(const char* name, Where where, const void* tiling);
  const void* tiling_at(Where where, uint64_t offset) const;
  HcclHandle prepare(Where where, const Collective& collective, bool commits);
  void commit(Where where, HcclHandle handle);
  void wait(Where where, HcclHandle handle);
  int32_t query(Where where, HcclHandle handle) const;
  void finalize(Where where, bool sync);
  uint32_t rank(Where where) const;
  uint32_t size(Where where) const;

 private:
  static constexpr int kMaxHandles = 63;
  struct Prepared {
    const char* name;
    uint8_t repeat, waited;
  };

  void require_open(const char* name, Where where) const;
  const Prepared& prepared(const char* name, Where where, HcclHandle handle) const;
  bool tells(Where where) const;
  void commit_turn(Where where, HcclHandle handle) const;

  CollectiveServer* server_ = nullptr;
  HcclServerConfig config_ = DEFAULT_CFG;
  const std::byte* tilings_ = nullptr;  // the base of the offsets of tilings
  bool has_tilings_ = false, is_tried_ = false, is_final_ = false;
  bool is_set_[static_cast<size_t>(HcclCMDType::HCCL_CMD_ALL)] = {};  // by SetCcTiling
  bool keeps_own_[static_cast<size_t>(HcclCMDType::HCCL_CMD_ALL)] = {};
  int count_ = 0;
  Prepared prepared_[kMaxHandles] = {};
};

}  // namespace cpu

template <uint32_t index>
GM_ADDR GetHcclContext(cpu::Where where = cpu::Where::current()) {
  static_assert(index < cpu::kGroups, "GetHcclContext: a kernel has two groups at most, 0 and 1");
  return static_cast<GM_ADDR>(const_cast<void*>(cpu::block(where).contexts[index]));
}
template <uint32_t index>
void SetHcclContext(GM_ADDR context, cpu::Where where = cpu::Where::current()) {
  static_assert(index < cpu::kGroups, "SetHcclContext: a kernel has two groups at most, 0 and 1");
  cpu::block(where).contexts[index] = context;
}

// All cores may call every function; one of them, by default the first of its kind, passes the calls to the server.
template <HcclServerType serverType = HCCL_SERVER_TYPE_AICPU, const auto& config = DEFAULT_CFG>
class Hccl {
  using Where = cpu::Where;

 public:
  void InitV2(GM_ADDR context, const void* initTiling, Where where = Where::current()) {
    client_.init(where, serverType, config, context, initTiling);
    if (initTiling == nullptr) cpu::fail(where, "InitV2: initTiling is null");
  }
  int32_t SetCcTilingV2(uint64_t offset, Where where = Where::current()) {
    client_.set_tiling("SetCcTilingV2", where, client_.tiling_at(where, offset));
    return HCCL_SUCCESS;
  }
  // The older forms, which take addresses.
  void Init(GM_ADDR context, __gm__ void* initTiling = nullptr, Where where = Where::current()) {
    client_.init(where, serverType, config, context, initTiling);
  }
  int32_t SetCcTiling(__gm__ void* ccOpTilingData, Where where = Where::current()) {
    client_.set_tiling("SetCcTiling", where, ccOpTilingData);
    return HCCL_SUCCESS;
  }

  // The Prepare functions. The turns of `repeat` are contiguous in both buffers.
  template <bool commit = false>
  HcclHandle AllReduce(GM_ADDR sendBuf, GM_ADDR recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                       uint8_t repeat = 1, Where where = Where::current()) {
    return client_.prepare(where, {HcclCMDType::HCCL_CMD_ALLREDUCE, sendBuf, recvBuf, count, 0, dataType, op, repeat},
                           commit);
  }
  template <bool commit = false>
  HcclHandle AllGather(GM_ADDR sendBuf, GM_ADDR recvBuf, uint64_t sendCount, HcclDataType dataType,
                       uint64_t strideCount, uint8_t repeat = 1, Where where = Where::current()) {
    return client_.prepare(where,
                           {HcclCMDType::HCCL_CMD_ALLGATHER, sendBuf, recvBuf, sendCount, strideCount, dataType,
                            HCCL_REDUCE_RESERVED, repeat},
                           commit);
  }
  template <bool commit = false>
  HcclHandle ReduceScatter(GM_ADDR sendBuf, GM_ADDR recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                           uint64_t strideCount, uint8_t repeat = 1, Where where = Where::current()) {
    return client_.prepare(
        where, {HcclCMDType::HCCL_CMD_REDUCE_SCATTER, sendBuf, recvBuf, recvCount, strideCount, dataType, op, repeat},
        commit);
  }
  template <bool commit = false>
  HcclHandle AlltoAll(GM_ADDR sendBuf, GM_ADDR recvBuf, uint64_t dataCount, HcclDataType dataType,
                      uint64_t strideCount = 0, uint8_t repeat = 1, Where where = Where::current()) {
    return client_.prepare(where,
                           {HcclCMDType::HCCL_CMD_ALLTOALL, sendBuf, recvBuf, dataCount, strideCount, dataType,
                            HCCL_REDUCE_RESERVED, repeat},
                           commit);
  }
  // Counts and offsets are numbers of 64 bits, one for each rank.
  template <bool commit = false>
  HcclHandle AlltoAllV(GM_ADDR sendBuf, const void* sendCounts, const void* sdispls, HcclDataType sendType,
                       GM_ADDR recvBuf, const void* recvCounts, const void* rdispls, HcclDataType recvType,
                       uint8_t repeat = 1, Where where = Where::current()) {
    if (sendType != recvType) {
      cpu::fail(where, "AlltoAllV: sendType is %d, recvType is %d; they must be the same", sendType, recvType);
    }
    return client_.prepare(where,
                           {HcclCMDType::HCCL_CMD_ALLTOALLV, sendBuf, recvBuf, 0, 0, sendType, HCCL_REDUCE_RESERVED,
                            repeat, static_cast<const uint64_t*>(sendCounts), static_cast<const uint64_t*>(sdispls),
                            static_cast<const uint64_t*>(recvCounts), static_cast<const uint64_t*>(rdispls)},
                           commit);
  }

  // The next turn of the task may run.
  void Commit(HcclHandle handleId, Where where = Where::current()) { client_.commit(where, handleId); }
  // Waits until the next turn of the task has ended.
  int32_t Wait(HcclHandle handleId, Where where = Where::current()) {
    client_.wait(where, handleId);
    return HCCL_SUCCESS;
  }
  // Returns how many turns of the task have ended.
  int32_t Query(HcclHandle handleId, Where where = Where::current()) { return client_.query(where, handleId); }
  template <bool sync = true>
  void Finalize(Where where = Where::current()) {
    client_.finalize(where, sync);
  }

  uint32_t GetRankId(Where where = Where::current()) { return client_.rank(where); }
  uint32_t GetRankDim(Where where = Where::current()) { return client_.size(where); }

 private:
  cpu::HcclClient client_;
};

}  // namespace AscendC
