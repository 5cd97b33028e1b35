// SPDX-License-Identifier: Apache-2.0
// Blocks that work on the same elements: they wait for each other, or add to what is there. And what a queue hands out.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kEach = 8;  // elements of a block

struct Shared {
  Shared(GM_ADDR x_address, GM_ADDR shared_address, GM_ADDR workspace_address, GM_ADDR y_address) {
    const uint64_t count = kEach * GetBlockNum();
    x.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x_address), count);
    shared.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(shared_address), count);
    workspace.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(workspace_address), count);
    y.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y_address), count);
    pipe.InitBuffer(row, kEach * sizeof(int32_t));
    pipe.InitBuffer(sum, kEach * sizeof(int32_t));
    pipe.InitBuffer(flags, count * sizeof(int32_t));
  }

  void share() {
    const uint32_t own = kEach * GetBlockIdx();
    DataCopy(row.Get<int32_t>(), x[own], kEach);
    PipeBarrier<PIPE_ALL>();
    DataCopy(shared[own], row.Get<int32_t>(), kEach);
  }

  void add_all() {
    Duplicate(sum.Get<int32_t>(), 0, kEach);
    for (uint32_t block = 0; block < GetBlockNum(); ++block) {
      PipeBarrier<PIPE_ALL>();
      DataCopy(row.Get<int32_t>(), shared[kEach * block], kEach);
      PipeBarrier<PIPE_ALL>();
      Add(sum.Get<int32_t>(), sum.Get<int32_t>(), row.Get<int32_t>(), kEach);
    }
    PipeBarrier<PIPE_ALL>();
    DataCopy(y[kEach * GetBlockIdx()], sum.Get<int32_t>(), kEach);
  }

  TPipe pipe;
  TBuf<> row, sum, flags;
  GlobalTensor<int32_t> x, shared, workspace, y;
};

template <class T>
void combine(GM_ADDR x_address, GM_ADDR y_address, uint32_t count, int32_t kind) {
  TPipe pipe;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 1, count * sizeof(T));
  GlobalTensor<T> x, y;
  x.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x_address) + count * GetBlockIdx(), count);
  y.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y_address), count);
  const auto bytes = static_cast<uint32_t>(count * sizeof(T));
  LocalTensor<T> tensor = queue.template AllocTensor<T>();
  DataCopyPad(tensor, x, {1, bytes, 0, 0, 0}, {false, 0, 0, 0});
  queue.EnQue(tensor);
  tensor = queue.template DeQue<T>();
  if (kind == 0) SetAtomicAdd<T>();
  if (kind == 1) SetAtomicMax<T>();
  if (kind == 2) SetAtomicMin<T>();
  DataCopyPad(y, tensor, {1, static_cast<uint16_t>(bytes), 0, 0});
  SetAtomicNone();
  queue.FreeTensor(tensor);
}

}  // namespace

extern "C" __global__ __aicore__ void sum_by_sync_all(GM_ADDR x, GM_ADDR shared, GM_ADDR workspace, GM_ADDR y) {
  Shared s(x, shared, workspace, y);
  s.share();
  SyncAll();
  s.add_all();
}

extern "C" __global__ __aicore__ void sum_by_soft_sync(GM_ADDR x, GM_ADDR shared, GM_ADDR workspace, GM_ADDR y) {
  Shared s(x, shared, workspace, y);
  s.share();
  SyncAll(s.workspace, s.flags.Get<int32_t>());
  s.add_all();
}

// A SyncAll of the first block alone, to which only the others come.
extern "C" __global__ __aicore__ void not_among_those_that_wait(GM_ADDR x, GM_ADDR y, GM_ADDR workspace) {
  Shared s(x, y, workspace, y);
  if (GetBlockIdx() > 0) SyncAll(s.workspace, s.flags.Get<int32_t>(), 1);
  s.share();
}

// Each block passes the message on to the next one, and the last one broadcasts it.
extern "C" __global__ __aicore__ void sum_by_flags(GM_ADDR x, GM_ADDR shared, GM_ADDR workspace, GM_ADDR y) {
  Shared s(x, shared, workspace, y);
  const auto wait = [&](int32_t block) { IBWait(s.workspace, s.flags.Get<int32_t>(), block, 0); };
  const auto own = static_cast<int32_t>(GetBlockIdx()), last = static_cast<int32_t>(GetBlockNum()) - 1;
  s.share();
  if (own > 0) wait(own - 1);
  if (own < last) IBSet(s.workspace, s.flags.Get<int32_t>(), own, 0);
  SyncAll();
  s.add_all();
}

extern "C" __global__ __aicore__ void atomically(GM_ADDR x, GM_ADDR y, uint32_t count, int32_t dtype, int32_t kind) {
  switch (dtype) {  // numpy's number of it
    case 1:
      return combine<int8_t>(x, y, count, kind);
    case 3:
      return combine<int16_t>(x, y, count, kind);
    case 5:
      return combine<int32_t>(x, y, count, kind);
    case 11:
      return combine<float>(x, y, count, kind);
    case 23:
      return combine<half>(x, y, count, kind);
    default:
      ASSERT(!"a dtype");
  }
}

// The addresses of the buffers that a queue hands out in turn, in bytes from the first.
extern "C" __global__ __aicore__ void addresses(GM_ADDR y, uint32_t buffers) {
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> queue;
  pipe.InitBuffer(queue, buffers, 64);
  GlobalTensor<int32_t> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), 16);
  const uint8_t* first = nullptr;
  for (uint32_t i = 0; i < 2 * buffers; ++i) {
    LocalTensor<uint8_t> tensor = queue.AllocTensor<uint8_t>();
    if (first == nullptr) first = tensor.GetPhyAddr();
    to.SetValue(i, static_cast<int32_t>(tensor.GetPhyAddr() - first));
    queue.FreeTensor(tensor);
  }
  DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(to);
}

// What the checks let pass: atomic copies in any order, elements of a line in the cache that others do not touch, a
// line that all blocks read, a flag's id that its queue has given back.
extern "C" __global__ __aicore__ void allowed(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  GlobalTensor<float> from, sum, of_block;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 16);
  sum.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 8);
  of_block.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(z) + 32 * GetBlockIdx(), 32);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  pipe.InitBuffer(in, 1, 32);
  LocalTensor<float> tensor = in.AllocTensor<float>();
  DataCopy(tensor, from, 8);
  in.EnQue(tensor);
  tensor = in.DeQue<float>();
  GET_TILING_DATA_WITH_STRUCT(uint64_t, tiling, x + 32);
  ASSERT(tiling != 0);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  PipeBarrier<PIPE_ALL>();
  SetAtomicAdd<float>();
  DataCopy(sum, tensor, 8);
  DataCopy(sum, tensor, 8);
  SetAtomicNone();
  of_block.SetValue(0, from.GetValue(8));
  of_block.SetValue(16, from.GetValue(9));
  PipeBarrier<PIPE_ALL>();
  DataCopy(tensor, of_block[8], 8);
  PipeBarrier<PIPE_ALL>();
  DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(of_block[16]);
  DataCopy(tensor, from, 8);
  PipeBarrier<PIPE_ALL>();
  DataCopy(of_block[24], tensor, 8);
  DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(of_block);
  PipeBarrier<PIPE_ALL>();
  DataCopy(of_block[24], tensor, 8);
  in.FreeTensor(tensor);
}

// More of that. Queues within the vector unit take no flag's id. Reset of a pool gives back its queues' ids alone, and
// waits for all pipes.
extern "C" __global__ __aicore__ void allowed_in_queues(GM_ADDR y) {
  GlobalTensor<float> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 8);
  TPipe pipe;
  TBufPool<TPosition::VECCALC> pool;
  TQue<QuePosition::VECIN, 1> before, inside, after;
  TQue<QuePosition::VECCALC, 9> within;
  TBuf<> buffer, again;
  pipe.InitBuffer(before, 1, 32);
  pipe.InitBufPool(pool, 64);
  pipe.InitBuffer(after, 1, 32);
  pipe.InitBuffer(within, 9, 32);
  pool.InitBuffer(inside, 1, 32);
  pool.InitBuffer(buffer, 32);
  for (auto* queue : {&before, &inside, &after}) queue->FreeTensor(queue->AllocTensor<float>());
  Duplicate(buffer.Get<float>(), 1.0f, 8);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(to, buffer.Get<float>(), 8);
  pool.Reset();
  pool.InitBuffer(again, 64);
  Duplicate(again.Get<float>(), 2.0f, 16);
  ASSERT(pipe.AllocEventID<HardEvent::V_MTE2>() == 1);
  ASSERT(pipe.AllocEventID<HardEvent::V_MTE2>() == 3);

  for (int i = 0; i < 9; ++i) {
    ASSERT(within.HasIdleBuffer());
    within.EnQue(within.AllocTensor<float>());
  }
  ASSERT(!within.HasIdleBuffer());
  for (int i = 0; i < 9; ++i) within.FreeTensor(within.DeQue<float>());
  ASSERT(within.HasIdleBuffer());
}

// Repeats that use the result of the repeat before: a destination that is also read, and a second source that is the
// first repeat's result or holds the last repeat's result.
extern "C" __global__ __aicore__ void allowed_to_accumulate(GM_ADDR) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 1024);
  LocalTensor<float> tensor = buffer.Get<float>();
  Duplicate(tensor, 1.0f, 256);
  MulAddDst(tensor, tensor[64], tensor[128], 64, 2, {1, 1, 1, 0, 0, 0});
  Add(tensor[64], tensor[192], tensor[64], 64, 2, {1, 1, 1, 8, 0, 0});
  PipeBarrier<PIPE_ALL>();
  ASSERT(tensor.GetValue(0) == 3 && tensor.GetValue(64) == 2 && tensor.GetValue(128) == 3);
  PipeBarrier<PIPE_ALL>();
  Add(tensor[64], tensor[192], tensor, 64, 2, {1, 1, 1, 0, 0, 8});
  PipeBarrier<PIPE_ALL>();
  ASSERT(tensor.GetValue(64) == 5);
}

// Wide elements whose halves are separate elements, at addresses that are no multiple of the wide element's size.
extern "C" __global__ __aicore__ void allowed_halves(GM_ADDR) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 256);
  LocalTensor<int32_t> tensor = buffer.Get<int32_t>();
  tensor[15].ReinterpretCast<int64_t>().SetValue(0, int64_t{4} << 32 | 3);
  ASSERT(tensor.GetValue(15) == 3 && tensor.GetValue(16) == 4);
  tensor.SetValue(2, 5);
  tensor.SetValue(3, 6);
  ASSERT(tensor.ReinterpretCast<int64_t>().GetValue(1) == (int64_t{6} << 32 | 5));
  SetFlag<HardEvent::S_V>(EVENT_ID0);
  WaitFlag<HardEvent::S_V>(EVENT_ID0);
  Duplicate(tensor, 7, 3);
  SetFlag<HardEvent::V_S>(EVENT_ID0);
  WaitFlag<HardEvent::V_S>(EVENT_ID0);
  ASSERT(tensor.ReinterpretCast<int64_t>().GetValue(1) == (int64_t{6} << 32 | 7));
}

// Blocks that do not fail take their time, so that another thread's block fails before the lowest begins.
extern "C" __global__ __aicore__ void fails_from(uint32_t block) {
  ASSERT(GetBlockIdx() < block);
  for (uint32_t i = 0; i < 300000; ++i) asm volatile("");
}
