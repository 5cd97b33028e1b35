// SPDX-License-Identifier: Apache-2.0
// Behind the precompiled headers and before a file of kernels, where cann_cpu.kernel_compiler reads it: the words of
// kernels stay in its text, and with ASCENDC_CPU_LAUNCHES it is compiled as for a device.
#undef __global__
#undef __aicore__
#undef __gm__
#define __global__ __global__
#define __aicore__ __aicore__
#define __gm__ __gm__

#ifdef ASCENDC_CPU_LAUNCHES
#undef ASCENDC_CPU_DEBUG
#undef __CCE_KT_TEST__
#endif
