// SPDX-License-Identifier: Apache-2.0
// A collective on the input, and then 1 is added: each core adds to its part of a turn's elements.
#include "collective_add_tiling.h"
#include "kernel_operator.h"
using namespace AscendC;

constexpr uint32_t kTile = 1024;
constexpr int64_t kLate = 25'000'000;  // half a second of GetSystemCycle

class Adder {
 public:
  __aicore__ inline void Init(GM_ADDR from, GM_ADDR to, uint32_t size) {
    from_.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(from), size);
    to_.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(to), size);
    pipe_.InitBuffer(in_, 1, kTile * sizeof(DTYPE_X));
    pipe_.InitBuffer(out_, 1, kTile * sizeof(DTYPE_X));
  }

  // This core's part of the elements.
  __aicore__ inline void Add(uint32_t first, uint32_t count) {
    const uint32_t blocks = GetBlockNum(), block = GetBlockIdx();
    const uint32_t begin = first + count * block / blocks, end = first + count * (block + 1) / blocks;
    for (uint32_t at = begin; at < end; at += kTile) {
      const uint32_t some = end - at < kTile ? end - at : kTile;
      const DataCopyExtParams all{1, static_cast<uint32_t>(some * sizeof(DTYPE_X)), 0, 0, 0};
      LocalTensor<DTYPE_X> read = in_.AllocTensor<DTYPE_X>();
      DataCopyPad(read, from_[at], all, DataCopyPadExtParams<DTYPE_X>{});
      in_.EnQue(read);
      read = in_.DeQue<DTYPE_X>();
      LocalTensor<DTYPE_X> sum = out_.AllocTensor<DTYPE_X>();
      Adds(sum, read, static_cast<DTYPE_X>(1), some);
      out_.EnQue(sum);
      in_.FreeTensor(read);
      sum = out_.DeQue<DTYPE_X>();
      DataCopyPad(to_[at], sum, all);
      out_.FreeTensor(sum);
    }
  }

 private:
  GlobalTensor<DTYPE_X> from_, to_;
  TPipe pipe_;
  TQue<TPosition::VECIN, 1> in_;
  TQue<TPosition::VECOUT, 1> out_;
};

class Collective {
 public:
  __aicore__ inline Collective(GM_ADDR x, GM_ADDR result, const CollectiveAddTilingData& data)
      : x_(x), result_(result), data_(data) {}

  __aicore__ inline bool Init() {
    if (data_.fault == NO_INIT) return true;
    hccl_.InitV2(GetHcclContext<HCCL_GROUP_ID_0>(), &data_);
    rank_ = hccl_.GetRankId();
    ranks_ = hccl_.GetRankDim();
    if (data_.fault == NO_TILING) return true;
    return hccl_.SetCcTilingV2(offsetof(CollectiveAddTilingData, cc)) == HCCL_SUCCESS;
  }

  // Of all turns at once.
  template <bool commit>
  __aicore__ inline HcclHandle Prepare() {
    const auto type = static_cast<HcclDataType>(data_.type);
    const auto op = data_.fault == PRODUCT ? HCCL_REDUCE_PROD : HCCL_REDUCE_SUM;
    const uint64_t count = data_.count + (data_.fault == OTHER_COUNT && rank_ == 1 ? 1 : 0);
    const uint64_t stride = data_.fault == STRIDE ? count - 1 : count * data_.repeat;
    switch (static_cast<HcclCMDType>(data_.command)) {
      case HcclCMDType::HCCL_CMD_ALLREDUCE:
        return hccl_.AllReduce<commit>(x_, result_, count, type, op, data_.repeat);
      case HcclCMDType::HCCL_CMD_ALLGATHER:
        return hccl_.AllGather<commit>(x_, result_, count, type, stride, data_.repeat);
      case HcclCMDType::HCCL_CMD_REDUCE_SCATTER:
        return hccl_.ReduceScatter<commit>(x_, result_, count, type, op, stride, data_.repeat);
      case HcclCMDType::HCCL_CMD_ALLTOALL:
        return hccl_.AlltoAll<commit>(x_, result_, count, type, stride, data_.repeat);
      default:
        break;
    }
    // Rank r sends r + 1 times as much; to whom, does not matter.
    uint64_t sends[8], send_offsets[8], receives[8], receive_offsets[8];
    uint64_t next = 0;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      sends[rank] = (rank_ + 1) * count;
      send_offsets[rank] = rank * sends[rank] * data_.repeat;
      receives[rank] = (rank + 1) * count;
      receive_offsets[rank] = next;
      next += receives[rank] * data_.repeat;
    }
    return hccl_.AlltoAllV<commit>(x_, sends, send_offsets, type, result_, receives, receive_offsets, type,
                                   data_.repeat);
  }

  __aicore__ inline HcclHandle Begin() {
    if (data_.fault == RANK_FAILS && rank_ == 1) ascendc_assert(false, "rank %u is no good", rank_);
    if (data_.fault == NO_SECOND_RANK && rank_ == 1) return INVALID_HANDLE_ID;
    if (data_.fault == NO_SECOND_RANK && GetBlockIdx() == 0) {
      for (const int64_t begin = GetSystemCycle(); GetSystemCycle() - begin < kLate;) {
      }
    }
    return data_.commits != 0 ? Prepare<true>() : Prepare<false>();
  }

  // The parts of the result that a turn has brought.
  __aicore__ inline void Add(Adder& adder, uint32_t turn) {
    const auto command = static_cast<HcclCMDType>(data_.command);
    if (command == HcclCMDType::HCCL_CMD_ALLREDUCE || command == HcclCMDType::HCCL_CMD_REDUCE_SCATTER) {
      return adder.Add(turn * data_.count, data_.count);
    }
    uint32_t next = 0;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const uint32_t part = command == HcclCMDType::HCCL_CMD_ALLTOALLV ? (rank + 1) * data_.count : data_.count;
      adder.Add(next + turn * part, part);
      next += part * data_.repeat;
    }
  }

  Hccl<HCCL_SERVER_TYPE_AICPU>& hccl() { return hccl_; }
  uint32_t rank() const { return rank_; }

 private:
  GM_ADDR x_;
  GM_ADDR result_;
  const CollectiveAddTilingData& data_;
  Hccl<HCCL_SERVER_TYPE_AICPU> hccl_;
  uint32_t rank_ = 0, ranks_ = 0;
};

extern "C" __global__ __aicore__ void collective_add(GM_ADDR x, GM_ADDR result, GM_ADDR y, GM_ADDR workspace,
                                                     GM_ADDR tiling) {
  REGISTER_TILING_DEFAULT(CollectiveAddTilingData);
  GET_TILING_DATA(data, tiling);
  Adder adder;
  adder.Init(result, y, data.size);
  Collective collective(x, result, data);
  auto& hccl = collective.hccl();
  if (!collective.Init()) return;
  if (data.fault == CORES_APART && GetBlockIdx() == 1) {
    GlobalTensor<DTYPE_X> first;
    first.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(x), 8);
    TPipe pipe;
    TBuf<TPosition::VECCALC> zeros;
    pipe.InitBuffer(zeros, 32);
    LocalTensor<DTYPE_X> some = zeros.Get<DTYPE_X>();
    Duplicate(some, static_cast<DTYPE_X>(0), 8);
    PipeBarrier<PIPE_ALL>();
    DataCopy(first, some, 8);
  }
  const HcclHandle handle = collective.Begin();
  if (handle == INVALID_HANDLE_ID) return hccl.Finalize();
  if (data.fault == FINALIZES_TOO_EARLY) hccl.Commit(handle);
  if (data.fault == FINALIZES_TOO_EARLY) return hccl.Finalize();
  for (uint32_t turn = 0; turn < data.repeat; ++turn) {
    if (data.commits == 0 && data.fault != NO_COMMIT) hccl.Commit(handle + (data.fault == BAD_HANDLE ? 5 : 0));
    if (data.fault == READS_EARLY) collective.Add(adder, turn);
    hccl.Wait(handle);
    if (data.fault != READS_EARLY) collective.Add(adder, turn);
  }
  while (hccl.Query(handle) < static_cast<int32_t>(data.repeat)) {
  }
  if (data.fault == COMMITS_TOO_OFTEN) hccl.Commit(handle);
  if (data.fault == WAITS_TOO_OFTEN) hccl.Wait(handle);
  SyncAll();
  if (data.fault != NO_FINALIZE) hccl.Finalize();
}
