// SPDX-License-Identifier: Apache-2.0
// Vector cores post products as messages, which the cube cores of a group make; some are merged, and some are wrong.
#include "kernel_operator.h"
#include "lib/matmul_intf.h"

using namespace AscendC;

namespace {

enum Case : uint32_t { NOTHING, HALF_OF_THEM, UNPOSTED, STATE, FREE_STATE, FAR_SKIP, NO_QUEUE, NO_QUIT, UNSYNCED };

struct Product {
  CubeGroupMsgHead head;
  uint8_t skips;
  uint8_t wrong;
  uint32_t unused;
  uint64_t a, c;
  uint64_t rest[5];
};
static_assert(sizeof(Product) == 64);

using Half = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using Float = MatmulType<TPosition::GM, CubeFormat::ND, float>;
using Multiplier = Matmul<Half, Half, Float>;

constexpr uint32_t kCount = 16 * 16;

// What the cube cores need: the tiling of a product of [16, 16], and its right matrix.
struct Shared {
  TCubeTiling tiling;
  uint64_t b;
};

template <class Object, class Message>
struct Serve {
  template <int32_t number>
  __aicore__ inline static typename IsEqual<number, 0>::Type Free(__gm__ Message* message,
                                                                  CubeResGroupHandle<Message>& handle) {
    handle.FreeMessage(message);
  }
  template <int32_t number>
  __aicore__ inline static typename IsEqual<number, 1>::Type Free(__gm__ Message* message,
                                                                  CubeResGroupHandle<Message>& handle) {
    for (uint32_t i = 1; i <= message->skips; ++i) handle.FreeMessage(message + i, CubeMsgState::FAKE);
    handle.FreeMessage(message, CubeMsgState::VALID);
    handle.SetSkipMsg(message->skips);
  }

  __aicore__ inline static void Call(Object& object, __gm__ Message* message, CubeResGroupHandle<Message>& handle) {
    GlobalTensor<half> a;
    GlobalTensor<float> c;
    a.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(message->a), kCount);
    c.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(message->c), kCount);
    object.SetTensorA(a);
    object.IterateAll(c);
    if (message->wrong == STATE) handle.FreeMessage(message, CubeMsgState::FAKE);
    if (message->wrong == FAR_SKIP) handle.SetSkipMsg(9);
    message->skips > 0 ? Free<1>(message, handle) : Free<0>(message, handle);
  }

  __aicore__ inline static void Init(Serve& own, Object& object, GM_ADDR shared) {
    own.tiling = reinterpret_cast<__gm__ Shared*>(shared)->tiling;
    GlobalTensor<half> b;
    b.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(reinterpret_cast<__gm__ Shared*>(shared)->b), kCount);
    object.SetSubBlockIdx(0);
    object.Init(&own.tiling, GetTPipePtr());
    object.SetTensorB(b);
  }

  TCubeTiling tiling;
};

// Each vector core doubles its `count` matrices of a, in order, and has them multiplied by b.
template <PipeMode mode>
__aicore__ inline void products(GM_ADDR a, GM_ADDR doubled, GM_ADDR c, GM_ADDR shared, GM_ADDR workspace,
                                uint32_t count, uint32_t cubes, uint32_t wrong) {
  TPipe pipe;
  TBuf<> buffer;
  const auto queue = static_cast<uint8_t>(GetBlockIdx());
  const auto queues = static_cast<uint8_t>(2 * GetBlockNum());
  KfcWorkspace queue_memory(workspace);
  auto handle = CreateCubeResGroup<1, Multiplier, Serve, Product>(queue_memory, 0, static_cast<uint8_t>(2 * cubes),
                                                                  queues, shared);
  if ASCEND_IS_AIC
    return;
  if (wrong != NO_QUEUE) handle.AssignQueue(queue);
  pipe.InitBuffer(buffer, kCount * sizeof(half));
  const LocalTensor<half> tile = buffer.Get<half>();
  uint16_t offset = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t at = queue * count + i;
    GlobalTensor<half> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(a) + at * kCount, kCount);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(doubled) + at * kCount, kCount);
    DataCopy(tile, from, kCount);
    PipeBarrier<PIPE_ALL>();
    Muls(tile, tile, static_cast<half>(2), kCount);
    PipeBarrier<PIPE_ALL>();
    DataCopy(to, tile, kCount);
    if (wrong != UNSYNCED) PipeBarrier<PIPE_ALL>();
    auto place = handle.template AllocMessage<mode>();
    Product product{{wrong == FREE_STATE ? CubeMsgState::FREE : CubeMsgState::VALID, queue},
                    0,
                    static_cast<uint8_t>(wrong),
                    0,
                    reinterpret_cast<uint64_t>(doubled + at * kCount * sizeof(half)),
                    reinterpret_cast<uint64_t>(c + at * kCount * sizeof(float)),
                    {}};
    offset = handle.template PostMessage<mode>(place, product);
  }
  if (wrong != NO_QUIT) handle.SetQuit(handle.AllocMessage());
  handle.template Wait<true>(offset);
  handle.template Wait<false>(offset);
}

}  // namespace

extern "C" __global__ __aicore__ void by_scalar(GM_ADDR a, GM_ADDR doubled, GM_ADDR c, GM_ADDR shared, GM_ADDR b,
                                                GM_ADDR workspace, uint32_t count, uint32_t cubes, uint32_t wrong) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if (GetBlockIdx() == 0) reinterpret_cast<__gm__ Shared*>(shared)->b = reinterpret_cast<uint64_t>(b);
  SyncAll<false>();
  products<PipeMode::SCALAR_MODE>(a, doubled, c, shared, workspace, count, cubes, wrong);
}

extern "C" __global__ __aicore__ void by_copies(GM_ADDR a, GM_ADDR doubled, GM_ADDR c, GM_ADDR shared, GM_ADDR b,
                                                GM_ADDR workspace, uint32_t count, uint32_t cubes, uint32_t wrong) {
  if (GetBlockIdx() == 0) reinterpret_cast<__gm__ Shared*>(shared)->b = reinterpret_cast<uint64_t>(b);
  SyncAll<false>();
  products<PipeMode::MTE3_MODE>(a, doubled, c, shared, workspace, count, cubes, wrong);
}

// All vector cores want the same product: the first one posts it, the others fake messages.
extern "C" __global__ __aicore__ void merged(GM_ADDR a, GM_ADDR c, GM_ADDR shared, GM_ADDR b, GM_ADDR workspace,
                                             GM_ADDR offsets, uint32_t rounds) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if (GetBlockIdx() == 0) reinterpret_cast<__gm__ Shared*>(shared)->b = reinterpret_cast<uint64_t>(b);
  SyncAll<false>();
  TPipe pipe;
  KfcWorkspace queue_memory(workspace);
  const auto queues = static_cast<uint8_t>(2 * GetBlockNum());
  auto handle = CreateCubeResGroup<1, Multiplier, Serve, Product>(queue_memory, 0, 2, queues, shared);
  if ASCEND_IS_AIV {
    const auto queue = static_cast<uint8_t>(GetBlockIdx());
    handle.AssignQueue(queue);
    for (uint32_t round = 0; round < rounds; ++round) {
      auto place = handle.AllocMessage();
      uint16_t offset = 0;
      if (queue == 0) {
        Product product{{CubeMsgState::VALID, queue},
                        static_cast<uint8_t>(queues - 1),
                        0,
                        0,
                        reinterpret_cast<uint64_t>(a),
                        reinterpret_cast<uint64_t>(c + round * kCount * sizeof(float)),
                        {}};
        offset = handle.PostMessage(place, product);
      } else {
        offset = handle.PostFakeMsg(place);
      }
      if (round % 2 == 1) handle.Wait<true>(offset);
      if (queue == 0) reinterpret_cast<__gm__ uint32_t*>(offsets)[round] = offset;
    }
    handle.SetQuit(handle.AllocMessage());
  }
}
