// SPDX-License-Identifier: Apache-2.0
// SetAtomicAdd, Max, Min and None: what copies from the unified buffer do to the elements that are in device memory.
#pragma once

#include "ascendc/data_copy.h"
#include "ascendc/vector.h"

namespace AscendC {
namespace cpu {

template <class T, class Function>
void set_atomic(Where where, Atomic::Kind kind, Function) {
  block(where).atomic = {kind, sizeof(T), [](std::byte* to, const std::byte* from, size_t bytes) {
                           for (size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
                             const auto there = static_cast<Computed<T>>(load<T>(to + at));
                             const auto other = static_cast<Computed<T>>(load<T>(from + at));
                             store(to + at, static_cast<T>(Function{}(there, other)));
                           }
                         }};
}

}  // namespace cpu

// From here on DataCopy and DataCopyPad to device memory add to what is there, or take the larger or smaller of both,
// element by element of type T; several blocks may do so to the same elements. SetAtomicNone ends it.
#define ASCENDC_CPU_ATOMIC(Name, which, function)                             \
  template <class T>                                                          \
    requires cpu::OneOf<T, half, bfloat16_t, float, int8_t, int16_t, int32_t> \
  void Name(cpu::Where where = cpu::Where::current()) {                       \
    cpu::needs<T>(#Name, where);                                              \
    cpu::set_atomic<T>(where, cpu::Atomic::Kind::which, function);            \
  }
ASCENDC_CPU_ATOMIC(SetAtomicAdd, Add, cpu::sum)
ASCENDC_CPU_ATOMIC(SetAtomicMax, Max, cpu::larger)
ASCENDC_CPU_ATOMIC(SetAtomicMin, Min, cpu::smaller)
#undef ASCENDC_CPU_ATOMIC

inline void SetAtomicNone(cpu::Where where = cpu::Where::current()) { cpu::block(where).atomic = {}; }
inline void DisableDmaAtomic(cpu::Where where = cpu::Where::current()) { SetAtomicNone(where); }

}  // namespace AscendC
