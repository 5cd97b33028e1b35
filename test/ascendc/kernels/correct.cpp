// SPDX-License-Identifier: Apache-2.0
// Kernels that break no rule: each writes 2 * x + 1 for its block's share of x to y, `per_block` elements.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kTile = 64;

struct Share {
  Share(GM_ADDR x_address, GM_ADDR y_address, uint32_t per_block) : count(per_block) {
    const uint64_t first = uint64_t{per_block} * GetBlockIdx();
    x.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x_address) + first, per_block);
    y.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y_address) + first, per_block);
  }
  uint32_t tile(uint32_t start) const { return count - start < kTile ? count - start : kTile; }

  GlobalTensor<float> x;
  GlobalTensor<float> y;
  uint32_t count;
};

void copy_in(const LocalTensor<float>& to, const GlobalTensor<float>& from, uint32_t count) {
  DataCopyPad(to, from, DataCopyExtParams{1, count * 4, 0, 0, 0}, DataCopyPadExtParams<float>{});
}

void copy_out(const GlobalTensor<float>& to, const LocalTensor<float>& from, uint32_t count) {
  DataCopyPad(to, from, DataCopyExtParams{1, count * 4, 0, 0, 0});
}

void compute(const LocalTensor<float>& to, const LocalTensor<float>& from, uint32_t count) {
  Muls(to, from, 2.0f, count);
  PipeBarrier<PIPE_V>();
  Adds(to, to, 1.0f, count);
}

// `buffers` tensors are on their way at a time: as many copies in are begun before the first is computed with.
template <int32_t buffers>
void queued(const Share& share) {
  TPipe pipe;
  TQue<QuePosition::VECIN, buffers> in;
  TQue<QuePosition::VECOUT, buffers> out;
  pipe.InitBuffer(in, buffers, kTile * sizeof(float));
  pipe.InitBuffer(out, buffers, kTile * sizeof(float));
  const auto begin = [&](uint32_t start) {
    if (start >= share.count) return;
    LocalTensor<float> tensor = in.template AllocTensor<float>();
    copy_in(tensor, share.x[start], share.tile(start));
    in.EnQue(tensor);
  };
  for (int32_t i = 0; i < buffers; ++i) begin(i * kTile);
  for (uint32_t start = 0; start < share.count; start += kTile) {
    LocalTensor<float> from = in.template DeQue<float>();
    LocalTensor<float> to = out.template AllocTensor<float>();
    compute(to, from, share.tile(start));
    out.EnQue(to);
    in.FreeTensor(from);
    begin(start + buffers * kTile);
    to = out.template DeQue<float>();
    copy_out(share.y[start], to, share.tile(start));
    out.FreeTensor(to);
  }
}

}  // namespace

extern "C" __global__ __aicore__ void one_buffer(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  queued<1>(Share(x, y, per_block));
}

extern "C" __global__ __aicore__ void two_buffers(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  queued<2>(Share(x, y, per_block));
}

extern "C" __global__ __aicore__ void four_buffers(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  queued<4>(Share(x, y, per_block));
}

// `skipped` is the number of the SetFlag that is left out, `with_its_wait` whether its WaitFlag is left out as well.
extern "C" __global__ __aicore__ void flags(GM_ADDR x, GM_ADDR y, uint32_t per_block, int32_t skipped,
                                            bool with_its_wait) {
  const Share share(x, y, per_block);
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 2 * kTile * sizeof(float));
  LocalTensor<float> from = buffer.Get<float>(kTile);
  LocalTensor<float> to = buffer.GetWithOffset<float>(kTile, kTile * sizeof(float));
  const bool sets[] = {skipped != 0, skipped != 1, skipped != 2, skipped != 3};
  const auto waits = [&](int flag) { return sets[flag] || !with_its_wait; };
  const auto id = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_V));
  if (sets[0]) SetFlag<HardEvent::V_MTE2>(id);
  if (sets[1]) SetFlag<HardEvent::MTE3_V>(id);
  for (uint32_t start = 0; start < share.count; start += kTile) {
    if (waits(0)) WaitFlag<HardEvent::V_MTE2>(id);
    copy_in(from, share.x[start], share.tile(start));
    if (sets[2]) SetFlag<HardEvent::MTE2_V>(id);
    if (waits(2)) WaitFlag<HardEvent::MTE2_V>(id);
    if (waits(1)) WaitFlag<HardEvent::MTE3_V>(id);
    compute(to, from, share.tile(start));
    if (sets[3]) SetFlag<HardEvent::V_MTE3>(id);
    if (sets[0]) SetFlag<HardEvent::V_MTE2>(id);
    if (waits(3)) WaitFlag<HardEvent::V_MTE3>(id);
    copy_out(share.y[start], to, share.tile(start));
    if (sets[1]) SetFlag<HardEvent::MTE3_V>(id);
  }
  if (waits(0)) WaitFlag<HardEvent::V_MTE2>(id);
  if (waits(1)) WaitFlag<HardEvent::MTE3_V>(id);
}

extern "C" __global__ __aicore__ void barriers(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  const Share share(x, y, per_block);
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, kTile * sizeof(float));
  for (uint32_t start = 0; start < share.count; start += kTile) {
    LocalTensor<float> tensor = buffer.Get<float>(share.tile(start));  // ends within a block of 32 bytes
    copy_in(tensor, share.x[start], share.tile(start));
    PipeBarrier<PIPE_ALL>();
    compute(tensor, tensor, share.tile(start));
    PipeBarrier<PIPE_ALL>();
    copy_out(share.y[start], tensor, share.tile(start));
    PipeBarrier<PIPE_ALL>();
  }
}

// The scalar unit computes; what it has waited for, the instructions that it then issues need not wait for again.
extern "C" __global__ __aicore__ void scalars(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  const Share share(x, y, per_block);
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, kTile * sizeof(float));
  LocalTensor<float> tensor = buffer.Get<float>();
  for (uint32_t start = 0; start < share.count; start += kTile) {
    const uint32_t count = share.tile(start);
    copy_in(tensor, share.x[start], count);
    SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
    Muls(tensor, tensor, 2.0f, count);
    SetFlag<HardEvent::V_S>(EVENT_ID0);
    WaitFlag<HardEvent::V_S>(EVENT_ID0);
    for (uint32_t i = 0; i < count; ++i) tensor.SetValue(i, tensor.GetValue(i) + 1.0f);
    SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
    copy_out(share.y[start], tensor, count);
    SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
  }
}

// A queue from device memory to device memory carries what the vector unit works on in place, between flags.
extern "C" __global__ __aicore__ void bound_queue(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  const Share share(x, y, per_block);
  TPipe pipe;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 2, kTile * sizeof(float));
  for (uint32_t start = 0; start < share.count; start += kTile) {
    LocalTensor<float> tensor = queue.AllocTensor<float>();
    copy_in(tensor, share.x[start], share.tile(start));
    const auto id = pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(id);
    WaitFlag<HardEvent::MTE2_V>(id);
    pipe.ReleaseEventID<HardEvent::MTE2_V>(id);
    compute(tensor, tensor, share.tile(start));
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    queue.EnQue(tensor);
    tensor = queue.DeQue<float>();
    copy_out(share.y[start], tensor, share.tile(start));
    queue.FreeTensor(tensor);
  }
}

// Tensors created from addresses, without a TPipe.
extern "C" __global__ __aicore__ void static_tensors(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  const Share share(x, y, per_block);
  const LocalTensor<float> tensor(TPosition::VECCALC, 1024, kTile);
  for (uint32_t start = 0; start < share.count; start += kTile) {
    copy_in(tensor, share.x[start], share.tile(start));
    pipe_barrier(PIPE_ALL);
    compute(tensor, tensor, share.tile(start));
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    copy_out(share.y[start], tensor, share.tile(start));
    pipe_barrier(PIPE_ALL);
  }
}

// A pool is divided anew for every tile.
extern "C" __global__ __aicore__ void pools(GM_ADDR x, GM_ADDR y, uint32_t per_block) {
  const Share share(x, y, per_block);
  TPipe pipe;
  TBufPool<TPosition::VECCALC> pool;
  pipe.InitBufPool(pool, 2 * kTile * sizeof(float));
  for (uint32_t start = 0; start < share.count; start += kTile) {
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
    TBuf<> between;
    pool.InitBuffer(queue, 1, kTile * sizeof(float));
    pool.InitBuffer(between, kTile * sizeof(float));
    LocalTensor<float> tensor = queue.AllocTensor<float>();
    copy_in(tensor, share.x[start], share.tile(start));
    PipeBarrier<PIPE_ALL>();
    compute(between.Get<float>(), tensor, share.tile(start));
    PipeBarrier<PIPE_ALL>();
    copy_out(share.y[start], between.Get<float>(), share.tile(start));
    queue.FreeTensor(tensor);
    pool.Reset();
  }
}
