// SPDX-License-Identifier: Apache-2.0
// Kernels that work on scalars: bits, casts, elements of tensors, and functions min and max that the kernel defines.
#include <bit>

#include "kernel_operator.h"

using namespace AscendC;

static_assert(std::is_same_v<AscendC::float16_t, half>);
static_assert(std::is_same_v<decltype(std::declval<GlobalTensor<float>>().GetPhyAddr()), const float*>);
static_assert(std::is_same_v<decltype(std::declval<GlobalTensor<float>>().GetPhyAddr(0)), float*>);
static_assert(std::bit_cast<float>(F32_INF) > 3e38f && std::bit_cast<float>(F32_NEG_INF) < -3e38f);
static_assert(std::bit_cast<float>(F32_NAN) != std::bit_cast<float>(F32_NAN));

template <typename T>
__aicore__ inline T min(T a, T b) {
  return a < b ? a : b;
}
__aicore__ inline int32_t max(int32_t a, int32_t b) { return a > b ? a : b; }

// y = bits of each number of x, six numbers for each.
extern "C" __global__ __aicore__ void bits(GM_ADDR x, GM_ADDR y, uint32_t count) {
  GlobalTensor<uint64_t> from;
  GlobalTensor<int64_t> to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(x), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(y), 6 * count);
  DataCachePreload(from, int64_t{0});
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t value = from(i);
    to(6 * i) = ScalarGetCountOfValue<1>(value);
    to(6 * i + 1) = ScalarGetCountOfValue<0>(value);
    to(6 * i + 2) = ScalarGetSFFValue<1>(value);
    to(6 * i + 3) = ScalarGetSFFValue<0>(value);
    to(6 * i + 4) = ScalarCountLeadingZero(value);
    to(6 * i + 5) = CountBitsCntSameAsSignBit(static_cast<int64_t>(value));
  }
}

// y = x rounded to the nearest, away from zero, up and down.
extern "C" __global__ __aicore__ void rounded(GM_ADDR x, GM_ADDR y, uint32_t count) {
  GlobalTensor<float> from;
  GlobalTensor<int32_t> to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), 4 * count);
  for (uint32_t i = 0; i < count; ++i) {
    to(4 * i) = ScalarCast<float, int32_t, RoundMode::CAST_RINT>(from(i));
    to(4 * i + 1) = ScalarCast<float, int32_t, RoundMode::CAST_ROUND>(from(i));
    to(4 * i + 2) = ScalarCast<float, int32_t, RoundMode::CAST_CEIL>(from(i));
    to(4 * i + 3) = ScalarCast<float, int32_t, RoundMode::CAST_FLOOR>(from(i));
  }
}

// y = the larger of two numbers of x by the kernel's own max, the smaller by its own min and by that of the compiler,
// added up in the core's memory.
extern "C" __global__ __aicore__ void chosen(GM_ADDR x, GM_ADDR y) {
  GlobalTensor<int32_t> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x), 8);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), 8);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 32);
  const LocalTensor<int32_t> sums = buffer.Get<int32_t>();
  Duplicate(sums, 0, 8);
  PipeBarrier<PIPE_ALL>();
  const int32_t first = from(0) ASSERT(from(0) > from(1));  // nothing but the number on a device
  sums(0) = max(first, from(1));
  sums(1) = min(from(0), from(1));
  sums(2) += min(int64_t{from(0)}, from(1));  // of two types: no function of this file
  sums(3) += from(uint64_t{2});
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, sums, 8);
}

// Reads past the end.
extern "C" __global__ __aicore__ void past_the_end(GM_ADDR x) {
  GlobalTensor<int32_t> from;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x), 8);
  ASSERT(from(8) == 0);
}

// A kernel may have the name of a function of namespace std, which is none of C.
extern "C" __global__ __aicore__ void lerp(GM_ADDR x) {
  GlobalTensor<float> numbers;
  numbers.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 8);
  numbers(2) = numbers(0) + 0.25f * (numbers(1) - numbers(0));
}
