// SPDX-License-Identifier: Apache-2.0
// Behind the precompiled headers and before a file of kernels, where cann_cpu.ascendc.compiler reads it: the words of
// kernels stay in its text, and with ASCENDC_CPU_LAUNCHES it is compiled as for a device. With ASCENDC_CPU_CORE it is
// compiled for one kind of cores, that of vectors or that of matrices.
#undef __global__
#undef __aicore__
#undef __gm__
#define __global__ __global__
#define __aicore__ __aicore__
#define __gm__ __gm__

#define __bf16 bfloat16_t  // by the device's compiler's own name, which not every g++ has

#ifdef ASCENDC_CPU_LAUNCHES
#undef ASCENDC_CPU_DEBUG
#undef __CCE_KT_TEST__
#endif

#define ASCENDC_CPU_AIV 1
#define ASCENDC_CPU_AIC 2
#ifdef ASCENDC_CPU_CORE
#undef __DAV_C220_VEC__
#if ASCENDC_CPU_CORE == ASCENDC_CPU_AIV
inline constexpr AscendC::cpu::CoreKind ascendc_cpu_core = AscendC::AIV;
#define __DAV_VEC__ 1
#if __NPU_ARCH__ == 2201
#define __DAV_C220_VEC__ 1
#else
#define __DAV_C310_VEC__ 1
#endif
#else
inline constexpr AscendC::cpu::CoreKind ascendc_cpu_core = AscendC::AIC;
#define __DAV_CUBE__ 1
#if __NPU_ARCH__ == 2201
#define __DAV_C220_CUBE__ 1
#else
#define __DAV_C310_CUBE__ 1
#endif
#endif
#define g_coreType ascendc_cpu_core
#endif
