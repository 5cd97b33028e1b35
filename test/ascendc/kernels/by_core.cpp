// SPDX-License-Identifier: Apache-2.0
// Kernels whose code is chosen by the preprocessor, or by constants, for the kind of cores that they are compiled for.
#include "kernel_operator.h"
#include "product.h"

using namespace AscendC;

// The two compilations have it in common, and it differs.
template <class T>
__aicore__ inline T kind() {
#ifdef __DAV_C220_CUBE__
  return 100;
#elif defined(__DAV_C220_VEC__)
  return 200;
#endif
}

template <int32_t core = g_coreType>
struct Named {
  static constexpr int32_t value = core;
};

template <class T>
__aicore__ inline void say(GM_ADDR seen, uint32_t place) {
  GlobalTensor<T> said;
  said.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(seen) + place * 16, 16);
  said.SetValue(0, kind<T>() + Named<>::value);
  DataCacheCleanAndInvalid<T, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(said);
}

#ifdef __DAV_CUBE__
static_assert(g_coreType == AIC);
__aicore__ inline void multiply(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  TPipe pipe;
  Product<half> product(pipe, 16, 16, 16);
  product.LoadLeft(a, false, BY_FRACTALS);
  product.LoadRight(b, false, BY_FRACTALS);
  product.Multiply();
  product.template Store<float>(c, NoQuant, 0, false, false);
}
#endif
#ifdef __DAV_VEC__
static_assert(g_coreType == AIV);
__aicore__ inline void add_one(GM_ADDR c, GM_ADDR y) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 128 * sizeof(float));
  const LocalTensor<float> part = buffer.Get<float>();
  GlobalTensor<float> sums, result;
  sums.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(c) + GetBlockIdx() * 128, 128);
  result.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + GetBlockIdx() * 128, 128);
  DataCopy(part, sums, 128);
  PipeBarrier<PIPE_ALL>();
  Adds(part, part, 1.0f, 128);
  PipeBarrier<PIPE_ALL>();
  DataCopy(result, part, 128);
}
#endif

extern "C" __global__ __aicore__ void both(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, GM_ADDR seen) {
#if defined(__DAV_C220_CUBE__)
  multiply(a, b, c);
  CrossCoreSetFlag<2, PIPE_FIX>(3);
  say<int32_t>(seen, 2);
#elif defined(__DAV_C220_VEC__)
  CrossCoreWaitFlag(3);
  add_one(c, y);
  say<int32_t>(seen, GetBlockIdx());
#endif
}

namespace inner {
extern "C" __global__ __aicore__ void cube_alone(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
#ifdef __DAV_C220_CUBE__
  SetAtomicAdd<float>();
  multiply(a, b, c);
  SetAtomicNone();
#endif
}
}  // namespace inner

extern "C" __global__ __aicore__ void vectors_alone(GM_ADDR c, GM_ADDR y) {
  if constexpr (g_coreType == AIV) {
#ifdef __DAV_C220_VEC__
    add_one(c, y);
#endif
  }
}

#ifdef HOST_LAUNCHES
static uint32_t loads = 0;
static const uint32_t loaded = ++loads;
extern "C" uint32_t times_loaded() { return loads; }
extern "C" void launch_both(uint32_t blocks, void* stream, GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR y, GM_ADDR seen) {
  both<<<blocks, nullptr, stream>>>(a, b, c, y, seen);
}
extern "C" void launch_cube_alone(uint32_t blocks, void* stream, void* a, void* b, void* c) {
  inner::cube_alone<<<blocks, nullptr, stream>>>(a, b, c);
}
#endif
