// SPDX-License-Identifier: Apache-2.0
// Built-in functions of the device compiler: flags and barriers by their C names, min and max of numbers.
#pragma once

#include <algorithm>

#include "ascendc/cores.h"
#include "ascendc/queue.h"

#ifndef likely
#define likely(condition) __builtin_expect(static_cast<bool>(condition), 1)
#define unlikely(condition) __builtin_expect(static_cast<bool>(condition), 0)
#endif

// Less specialized than any `min` of a kernel's own and than std::min, so that calls of those stay unambiguous.
template <class A, class B>
  requires((std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) || std::is_same_v<A, B>)
constexpr auto min(A a, B b) {
  return std::min<std::common_type_t<A, B>>(a, b);
}
template <class A, class B>
  requires((std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) || std::is_same_v<A, B>)
constexpr auto max(A a, B b) {
  return std::max<std::common_type_t<A, B>>(a, b);
}

// The block of a core, as its register has it: all vector cores of a mixed kernel's block read the same number.
inline int64_t get_block_idx(AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  return AscendC::cpu::block(where).core.block;
}
inline int64_t get_block_num(AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  return AscendC::GetBlockNum(where);
}
inline int64_t get_subblockid(AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  return AscendC::GetSubBlockIdx(where);
}
inline int64_t get_subblockdim(AscendC::cpu::Where where = AscendC::cpu::Where::current()) {
  return AscendC::GetSubBlockNum(where);
}

namespace AscendC::cpu {
struct BlockIndex {
  operator int64_t() const { return get_block_idx(); }  // NOLINT(google-explicit-constructor)
};
}  // namespace AscendC::cpu
inline constexpr AscendC::cpu::BlockIndex block_idx;

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
template <class T, class... Others>
inline constexpr bool is_one_of_v = (std::is_same_v<T, Others> || ...);
}  // namespace Std

template <class T, class U>
constexpr auto DivCeil(T a, U b) {
  return (a + b - 1) / b;
}

constexpr uint32_t GetDataBlockSizeInBytes() { return cpu::kBlockBytes; }

// The instructions of a kernel are there when it begins.
inline void ICachePreLoad(int64_t /*length*/) {}
inline int64_t GetICachePreloadStatus() { return 0; }

}  // namespace AscendC

// The same, of 2 KiB each.
#define PRELOAD(length) AscendC::ICachePreLoad(length)
