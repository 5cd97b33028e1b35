// SPDX-License-Identifier: Apache-2.0
// The work buffers of the libraries' functions of elements: on the CPU a block of 32 bytes, on a device as the shapes
// are.
#pragma once

#include <stdint.h>

namespace AscendC {

// The sizes of a shape, and what an element takes of them: a number of elements beside each, and bytes beside all.
#define CANN_CPU_WORK_BUFFER(Name)                                                                             \
  template <class Shape>                                                                                       \
  void Get##Name##MaxMinTmpSize(const Shape&, uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max, \
                                uint32_t& min) {                                                               \
    max = min = 32;                                                                                            \
  }                                                                                                            \
  inline void Get##Name##TmpBufferFactorSize(uint32_t /*type_size*/, uint32_t& live_nodes, uint32_t& extra) {  \
    live_nodes = 0, extra = 32;                                                                                \
  }
CANN_CPU_WORK_BUFFER(Acos)
CANN_CPU_WORK_BUFFER(Acosh)
CANN_CPU_WORK_BUFFER(Asin)
CANN_CPU_WORK_BUFFER(Asinh)
CANN_CPU_WORK_BUFFER(Atan)
CANN_CPU_WORK_BUFFER(Atanh)
CANN_CPU_WORK_BUFFER(Axpy)
CANN_CPU_WORK_BUFFER(Ceil)
CANN_CPU_WORK_BUFFER(Clamp)
CANN_CPU_WORK_BUFFER(Cos)
CANN_CPU_WORK_BUFFER(Cosh)
CANN_CPU_WORK_BUFFER(Erf)
CANN_CPU_WORK_BUFFER(Erfc)
CANN_CPU_WORK_BUFFER(Exp)
CANN_CPU_WORK_BUFFER(Floor)
CANN_CPU_WORK_BUFFER(Fmod)
CANN_CPU_WORK_BUFFER(Frac)
CANN_CPU_WORK_BUFFER(GeGLU)
CANN_CPU_WORK_BUFFER(Lgamma)
CANN_CPU_WORK_BUFFER(Log)
CANN_CPU_WORK_BUFFER(Log10)
CANN_CPU_WORK_BUFFER(Log2)
CANN_CPU_WORK_BUFFER(ReGlu)
CANN_CPU_WORK_BUFFER(Round)
CANN_CPU_WORK_BUFFER(Sigmoid)
CANN_CPU_WORK_BUFFER(Sign)
CANN_CPU_WORK_BUFFER(Sin)
CANN_CPU_WORK_BUFFER(Sinh)
CANN_CPU_WORK_BUFFER(SwiGLU)
CANN_CPU_WORK_BUFFER(Tan)
CANN_CPU_WORK_BUFFER(Tanh)
CANN_CPU_WORK_BUFFER(Trunc)
CANN_CPU_WORK_BUFFER(Xor)
#undef CANN_CPU_WORK_BUFFER

// SwiGLU's has the sizes in front of whether the source is reused.
template <class Shape>
void GetSwiGLUMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min,
                            bool /*is_reuse_source*/) {
  max = min = 32;
}
template <class Shape>
void GetGeluMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Shape>
void GetSiluTmpSize(const Shape&, uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Shape>
void GetSwishTmpSize(const Shape&, uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Shape>
void GetCumSumMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, bool /*is_last_axis*/, bool /*is_reuse_source*/,
                            uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Shape>
void GetAscendQuantMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Shape>
void GetAscendDequantMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
inline void GetMeanMaxMinTmpSize(uint32_t /*elements*/, uint32_t /*type_size*/, uint32_t /*sum_type_size*/,
                                 bool /*is_reuse_source*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
inline void GetSumMaxMinTmpSize(uint32_t /*elements*/, uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max,
                                uint32_t& min) {
  max = min = 32;
}

}  // namespace AscendC
