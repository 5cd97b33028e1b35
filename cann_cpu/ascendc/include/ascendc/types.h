// SPDX-License-Identifier: Apache-2.0
// The words of a kernel: qualifiers, pipes, events, positions, rounding modes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "cann_cpu/architecture.h"

// Kernel files test these names for a compiler other than the device compiler, which has no <<<>>>.
#define ASCENDC_CPU_DEBUG 1
#ifndef __CCE_KT_TEST__
#define __CCE_KT_TEST__ 1
#endif

// The architecture that the kernel is compiled for: Atlas A2 unless an option names another. The other definitions of
// CANN's compiler for it are in the documentation of asc-tools (products of its tests).
#ifndef __NPU_ARCH__
#define __NPU_ARCH__ 2201
#endif
#ifndef __CCE_AICORE__
#if __NPU_ARCH__ == 2201
#define __CCE_AICORE__ 220
#define __DAV_C220_VEC__ 1
#elif __NPU_ARCH__ == 1001
#define __CCE_AICORE__ 100
#define __DAV_C100__ 1
#elif __NPU_ARCH__ == 2002
#define __CCE_AICORE__ 200
#define __DAV_M200__ 1
#elif __NPU_ARCH__ == 3002
#define __CCE_AICORE__ 300
#define __DAV_M300__ 1
#elif __NPU_ARCH__ == 3510
#define __CCE_AICORE__ 310
#define __DAV_C310__ 1
#else
#error "__NPU_ARCH__: kernels on the CPU are of 1001, 2002, 2201, 3002 or 3510"
#endif
#endif

// Address spaces and kinds of functions. Only the device compiler and readers of preprocessed text distinguish them.
#ifndef __global__
#define __global__
#define __aicore__
#define __gm__
#endif
#define __vector__  // a kernel for vector cores
#define __forceinline__ inline __attribute__((always_inline))
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __biasbuf__
#define GM_ADDR __gm__ uint8_t*

// The queues of a core that work beside each other; each is in order with itself.
enum pipe_t : uint8_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_M, PIPE_MTE1, PIPE_FIX, PIPE_ALL };

enum event_t : uint8_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

// The cores that run a block of a kernel.
enum KernelMetaType : uint8_t {
  KERNEL_TYPE_AIV_ONLY,
  KERNEL_TYPE_MIX_AIV_1_0,  // vector cores that wait for each other
  KERNEL_TYPE_AIC_ONLY,
  KERNEL_TYPE_MIX_AIC_1_0,
  KERNEL_TYPE_MIX_AIC_1_1,
  KERNEL_TYPE_MIX_AIC_1_2,  // a cube core and two vector cores
  // For chips whose cores have both units: blocks on AI cores, on the vector cores beside them, or on either.
  KERNEL_TYPE_AICORE,
  KERNEL_TYPE_VECTORCORE,
  KERNEL_TYPE_MIX_AICORE,
  KERNEL_TYPE_MIX_VECTOR_CORE
};

namespace AscendC {

using TEventID = int8_t;

namespace cpu {

using Where = std::source_location;

inline constexpr uint32_t kPipes = PIPE_ALL;
inline constexpr uint32_t kEventIds = 8;
inline constexpr uint32_t kBlockBytes = 32;     // what DataCopy moves at least, and what addresses are aligned to
inline constexpr uint32_t kRepeatBytes = 256;   // what the vector unit works on at a time
inline constexpr uint32_t kFractalBytes = 512;  // 16 rows of 32 bytes, what LoadData moves at least
inline constexpr int64_t kFractalRows = 16;
inline constexpr const cann_cpu::Architecture& kArchitecture = cann_cpu::architecture_of(__NPU_ARCH__);

constexpr int64_t whole_blocks(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

constexpr uint8_t event(pipe_t source, pipe_t target) { return source * kPipes + target; }
constexpr pipe_t source(uint8_t event) { return static_cast<pipe_t>(event / kPipes); }
constexpr pipe_t target(uint8_t event) { return static_cast<pipe_t>(event % kPipes); }

}  // namespace cpu

// The sizes of blocks and repeats in bytes, and the strides of operands whose elements follow each other.
inline constexpr int32_t ONE_BLK_SIZE = cpu::kBlockBytes;
inline constexpr int32_t ONE_REPEAT_BYTE_SIZE = cpu::kRepeatBytes;
inline constexpr uint32_t TOTAL_UB_SIZE = cpu::kArchitecture.unified_buffer;
// Leaves out the bytes that some instructions write to. For 3002 asc-devkit has 184 KiB (kernel_utils_constants.h).
inline constexpr int32_t TOTAL_VEC_LOCAL_SIZE =
    __NPU_ARCH__ == 3002 ? 184 * 1024 : cpu::kArchitecture.unified_buffer - cpu::kArchitecture.scratch;
// Bits of floats.
inline constexpr uint32_t F32_INF = 0x7f800000;
inline constexpr uint32_t F32_NEG_INF = 0xff800000;
inline constexpr uint32_t F32_NAN = 0x7fc00000;
inline constexpr int32_t DEFAULT_BLK_NUM = 8;
inline constexpr uint8_t DEFAULT_BLK_STRIDE = 1;
inline constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;

template <class T, class U>
struct IsSameType : std::is_same<T, U> {};
template <bool condition, class T, class U>
using Conditional = std::conditional<condition, T, U>;

// Two integers of 4 bits, the first one in the lower half. Tensors of it count the integers.
struct int4b_t {
  uint8_t bits;
};

namespace cpu {

// Bytes of elements that follow each other.
template <class T>
constexpr int64_t bytes_of(int64_t elements) {
  return std::is_same_v<T, int4b_t> ? (elements + 1) / 2 : elements * static_cast<int64_t>(sizeof(T));
}

}  // namespace cpu

// SetFlag<HardEvent::MTE2_V> signals to the vector pipe that the MTE2 pipe has reached this point.
enum class HardEvent : uint8_t {
#define ASCENDC_CPU_EVENT(from, to) from##_##to = cpu::event(PIPE_##from, PIPE_##to)
#define ASCENDC_CPU_EVENTS(one, two) ASCENDC_CPU_EVENT(one, two), ASCENDC_CPU_EVENT(two, one)
  ASCENDC_CPU_EVENTS(MTE2, V),
  ASCENDC_CPU_EVENTS(MTE3, V),
  ASCENDC_CPU_EVENTS(MTE2, MTE3),
  ASCENDC_CPU_EVENTS(S, V),
  ASCENDC_CPU_EVENTS(S, MTE2),
  ASCENDC_CPU_EVENTS(S, MTE3),
  ASCENDC_CPU_EVENTS(S, M),
  ASCENDC_CPU_EVENTS(S, MTE1),
  ASCENDC_CPU_EVENTS(S, FIX),
  ASCENDC_CPU_EVENTS(V, M),
  ASCENDC_CPU_EVENTS(V, MTE1),
  ASCENDC_CPU_EVENTS(V, FIX),
  ASCENDC_CPU_EVENTS(MTE2, MTE1),
  ASCENDC_CPU_EVENTS(MTE2, M),
  ASCENDC_CPU_EVENTS(MTE2, FIX),
  ASCENDC_CPU_EVENTS(MTE3, MTE1),
  ASCENDC_CPU_EVENTS(MTE3, M),
  ASCENDC_CPU_EVENTS(MTE3, FIX),
  ASCENDC_CPU_EVENTS(MTE1, M),
  ASCENDC_CPU_EVENTS(MTE1, FIX),
  ASCENDC_CPU_EVENTS(M, FIX),
#undef ASCENDC_CPU_EVENTS
#undef ASCENDC_CPU_EVENT
};

// The memories of a core, and what a tensor is on its way between them.
enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };

// A1, B1, C1, TSCM: matrices and the bias before they are divided; A2, B2, C2: the factors and the bias of the matrix
// unit; CO1: its sums; C2PIPE2GM: scales by which they are quantised on their way out.
enum class TPosition : uint8_t {
  GM,
  A1,
  A2,
  B1,
  B2,
  C1,
  C2,
  CO1,
  CO2,
  VECIN,
  VECOUT,
  VECCALC,
  LCM = VECCALC,
  SPM,
  SHM = SPM,
  TSCM,
  C2PIPE2GM,
  MAX
};
using QuePosition = TPosition;

// By the table of TPosition in CANN's documentation: without a bias table, C1 and C2 lie where the sums are, and sums
// go out through the unified buffer.
constexpr Hardware GetPhyType(TPosition position) {
  constexpr bool kHasBiasTable = cpu::kArchitecture.bias_table != 0;
  constexpr Hardware kC1 = kHasBiasTable ? Hardware::L1 : Hardware::UB;
  constexpr Hardware kC2 = kHasBiasTable ? Hardware::BIAS : Hardware::L0C;
  constexpr Hardware kCO2 = kHasBiasTable ? Hardware::GM : Hardware::UB;
  constexpr Hardware kHardware[] = {Hardware::GM, Hardware::L1, Hardware::L0A, Hardware::L1, Hardware::L0B,
                                    kC1,          kC2,          Hardware::L0C, kCO2,         Hardware::UB,
                                    Hardware::UB, Hardware::UB, Hardware::L1,  Hardware::L1, Hardware::FIXBUF};
  return kHardware[static_cast<uint8_t>(position)];
}

namespace cpu {

inline constexpr size_t kHardwares = static_cast<size_t>(Hardware::MAX);
constexpr uint32_t bytes_of(const cann_cpu::Architecture& core, Hardware hardware) {
  const uint32_t bytes[kHardwares] = {
      0, core.unified_buffer, core.l1, core.l0a, core.l0b, core.l0c, core.bias_table, core.fixpipe_buffer};
  return bytes[static_cast<size_t>(hardware)];
}
// The largest of all chips.
constexpr uint32_t largest_bytes_of(Hardware hardware) {
  uint32_t largest = 0;
  for (const cann_cpu::Architecture& core : cann_cpu::kArchitectures) {
    largest = largest < bytes_of(core, hardware) ? bytes_of(core, hardware) : largest;
  }
  return largest;
}
inline constexpr const char* kHardwareNames[kHardwares] = {
    "device memory", "the unified buffer", "L1", "L0A", "L0B", "L0C", "the bias table", "the fixpipe buffer"};

constexpr const char* name_of(Hardware hardware) { return kHardwareNames[static_cast<size_t>(hardware)]; }

}  // namespace cpu

enum class RoundMode : uint8_t { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class CMPMODE : uint8_t { LT, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };

// How the operands of the mask form lie: strides between blocks and between repeats, in blocks of 32 bytes.
struct UnaryRepeatParams {
  uint16_t dstBlkStride = 1;
  uint16_t srcBlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t srcRepStride = 8;
};

struct BinaryRepeatParams {
  uint8_t dstBlkStride = 1;
  uint8_t src0BlkStride = 1;
  uint8_t src1BlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t src0RepStride = 8;
  uint8_t src1RepStride = 8;
};

struct CopyRepeatParams {
  uint16_t dstStride = 1;
  uint16_t srcStride = 1;
  uint16_t dstRepeatSize = 8;
  uint16_t srcRepeatSize = 8;
};

// DataCopy: lengths and gaps in blocks of 32 bytes. DataCopyPad: lengths and the gaps in device memory in bytes.
// {count, length, gap, gap} is the first of the two structs, and with a fifth number the second.
struct DataCopyParams {
  constexpr DataCopyParams() = default;
  constexpr DataCopyParams(uint16_t count, uint16_t length, uint16_t src_stride, uint16_t dst_stride)
      : blockCount(count), blockLen(length), srcStride(src_stride), dstStride(dst_stride) {}

  uint16_t blockCount = 1;
  uint16_t blockLen = 0;
  union {
    uint16_t srcStride = 0;
    uint16_t srcGap;
  };
  union {
    uint16_t dstStride = 0;
    uint16_t dstGap;
  };
};

struct DataCopyExtParams {
  constexpr DataCopyExtParams() = default;
  constexpr DataCopyExtParams(uint16_t count, uint32_t length, int64_t src_stride, int64_t dst_stride, uint32_t rsv)
      : blockCount(count), blockLen(length), srcStride(src_stride), dstStride(dst_stride), rsv(rsv) {}

  uint16_t blockCount = 1;
  uint32_t blockLen = 0;
  int64_t srcStride = 0;
  int64_t dstStride = 0;
  uint32_t rsv = 0;
};

struct DataCopyPadParams {
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  uint64_t paddingValue = 0;
};

template <class T>
struct DataCopyPadExtParams {
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  T paddingValue{};
};

}  // namespace AscendC
