// SPDX-License-Identifier: Apache-2.0
// What the device compiler has built in: the kind of core, flags and barriers by their C names, min and max of numbers.
#pragma once

#include <algorithm>

#include "ascendc/queue.h"

enum class KernelMode : uint8_t { AIC_MODE, AIV_MODE, MIX_MODE };

namespace AscendC {
enum CoreKind : uint8_t { AIC = 1, AIV = 2 };
}

inline constexpr AscendC::CoreKind g_coreType = AscendC::AIV;

// if ASCEND_IS_AIV { ... }
#define ASCEND_IS_AIV constexpr(true)
#define ASCEND_IS_AIC constexpr(false)
#define ASCEND_IS_NOT_AIV ASCEND_IS_AIC
#define ASCEND_IS_NOT_AIC ASCEND_IS_AIV

#ifndef likely
#define likely(condition) __builtin_expect(static_cast<bool>(condition), 1)
#define unlikely(condition) __builtin_expect(static_cast<bool>(condition), 0)
#endif

using std::max;
using std::min;

template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>)
constexpr auto min(A a, B b) {
  return std::min<std::common_type_t<A, B>>(a, b);
}
template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>)
constexpr auto max(A a, B b) {
  return std::max<std::common_type_t<A, B>>(a, b);
}

inline void pipe_barrier(pipe_t pipe, AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  AscendC::cpu::pipe_barrier(pipe, where);
}
inline void set_flag(pipe_t from, pipe_t to, int32_t id, AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  AscendC::cpu::set_flag(AscendC::cpu::event(from, to), id, where);
}
inline void wait_flag(pipe_t from, pipe_t to, int32_t id, AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  AscendC::cpu::wait_flag(AscendC::cpu::event(from, to), id, where);
}

using float32_t = float;

namespace AscendC {

// The standard library by the name that kernels may use.
namespace Std {
using namespace ::std;
using ::max;
using ::min;
}  // namespace Std

// How many cores of a block compute, and the number of this one: vector cores alone run the kernel.
inline int64_t GetSubBlockNum() { return 1; }
inline int64_t GetSubBlockIdx() { return 0; }
inline int64_t GetTaskRation() { return 1; }
inline int64_t GetTaskRatio() { return 1; }

using ::KernelMode;
inline void SetKernelMode(KernelMode) {}

template <class T, class U>
constexpr auto DivCeil(T a, U b) {
  return (a + b - 1) / b;
}

constexpr uint32_t GetDataBlockSizeInBytes() { return cpu::kBlockBytes; }

constexpr HardEvent GetHardEventByPipe(pipe_t from, pipe_t to) { return static_cast<HardEvent>(cpu::event(from, to)); }

}  // namespace AscendC
