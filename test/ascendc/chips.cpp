// SPDX-License-Identifier: Apache-2.0
// Kernels that say what they were compiled for, fill memories, and use what only some chips have.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kElements = 256;

// A tensor of each dtype, all of the same bytes.
struct Operands {
  template <class T>
  LocalTensor<T> get(uint32_t number) {
    LocalTensor<T> tensor = buffer.GetWithOffset<uint8_t>(2048, number * 2048).template ReinterpretCast<T>();
    Duplicate(tensor.template ReinterpretCast<int32_t>(), int32_t{0}, 512);
    PipeBarrier<PIPE_ALL>();
    return tensor;
  }

  Operands() { pipe.InitBuffer(buffer, 16 * 2048); }
  TPipe pipe;
  TBuf<> buffer;
};

template <class T>
GlobalTensor<T> global(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
  return tensor;
}

}  // namespace

extern "C" __global__ __aicore__ void says(GM_ADDR y) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 64);
  LocalTensor<int32_t> said = buffer.Get<int32_t>();
  Duplicate(said, int32_t{0}, 16);
  PipeBarrier<PIPE_ALL>();
  said.SetValue(0, __NPU_ARCH__);
  said.SetValue(1, __CCE_AICORE__);
  said.SetValue(2, static_cast<int32_t>(TOTAL_UB_SIZE));
  said.SetValue(3, TOTAL_VEC_LOCAL_SIZE);
  if (ASCEND_IS_AIC) said.SetValue(4, 1);
  if (ASCEND_IS_AIV) said.SetValue(5, 1);
#if defined(__DAV_C220_VEC__)
  said.SetValue(6, 220);
#elif defined(__DAV_C100__)
  said.SetValue(6, 100);
#elif defined(__DAV_M200__)
  said.SetValue(6, 200);
#elif defined(__DAV_M300__)
  said.SetValue(6, 300);
#elif defined(__DAV_C310__)
  said.SetValue(6, 310);
#endif
  PipeBarrier<PIPE_ALL>();
  DataCopy(global<int32_t>(y), said, 16);
}

// Writes the last block of a buffer of so many bytes.
extern "C" __global__ __aicore__ void fills(GM_ADDR y, uint32_t bytes) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, bytes);
  LocalTensor<float> last = buffer.Get<float>()[bytes / sizeof(float) - 8];
  Duplicate(last, 7.0f, 8);
  PipeBarrier<PIPE_ALL>();
  DataCopy(global<float>(y), last, 8);
}

// Select, which some chips need the last bytes of the unified buffer for.
extern "C" __global__ __aicore__ void selects(GM_ADDR y, uint32_t bytes, uint32_t mode) {
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, bytes);
  LocalTensor<float> a = buffer.GetWithOffset<float>(64, 0), b = buffer.GetWithOffset<float>(64, 256);
  LocalTensor<uint8_t> bits = buffer.GetWithOffset<uint8_t>(32, 512);
  Duplicate(a, 1.0f, 64);
  Duplicate(b, 2.0f, 64);
  Duplicate(bits.ReinterpretCast<int32_t>(), int32_t{0x0f0f0f0f}, 8);
  PipeBarrier<PIPE_V>();
  if (mode == 0) Select(a, bits, a, b, SELMODE::VSEL_CMPMASK_SPR, 64);
  if (mode == 1) Select(a, bits, a, 2.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);
  if (mode == 2) Select(a, bits, a, b, SELMODE::VSEL_TENSOR_TENSOR_MODE, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(global<float>(y), a, 8);
}

// The bytes of a comparison of `count` equal elements, over bytes of 7.
extern "C" __global__ __aicore__ void compares(GM_ADDR y, uint32_t count) {
  Operands operands;
  const LocalTensor<float> a = operands.get<float>(0), written = operands.get<float>(1);
  const LocalTensor<uint8_t> bits = operands.get<uint8_t>(2);
  Duplicate(bits.ReinterpretCast<int32_t>(), int32_t{0x07070707}, 8);
  PipeBarrier<PIPE_ALL>();
  Compare(bits, a, a, CMPMODE::EQ, count);
  PipeBarrier<PIPE_ALL>();
  for (uint32_t i = 0; i < 16; ++i) written.SetValue(i, static_cast<float>(bits.GetValue(i)));
  PipeBarrier<PIPE_ALL>();
  DataCopy(global<float>(y), written, 16);
}

// Both units of a core: a matrix's station and the vector unit's memory.
extern "C" __global__ __aicore__ void has_both_units(GM_ADDR y) {
  TPipe pipe;
  TBuf<TPosition::A1> station;
  TBuf<> buffer;
  pipe.InitBuffer(station, 512);
  pipe.InitBuffer(buffer, 512);
  LocalTensor<float> values = buffer.Get<float>();
  Duplicate(values, static_cast<float>(GetBlockIdx() + 1), 128);
  PipeBarrier<PIPE_ALL>();
  DataCopy(global<float>(y)[GetBlockIdx() * 128], values, 128);
  PipeBarrier<PIPE_ALL>();
  DataCopy(station.Get<float>(), global<float>(y)[GetBlockIdx() * 128], 128);
}

extern "C" __global__ __aicore__ void declares(GM_ADDR /*y*/, uint32_t which) {
  if (which == 0) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  if (which == 1) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AICORE);
  if (which == 2) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
}

#define USES(name, ...)                                   \
  extern "C" __global__ __aicore__ void name(GM_ADDR y) { \
    Operands of;                                          \
    static_cast<void>(y);                                 \
    __VA_ARGS__;                                          \
  }

USES(uses_add_float, Add(of.get<float>(0), of.get<float>(1), of.get<float>(2), kElements))
USES(uses_add_int16, Add(of.get<int16_t>(0), of.get<int16_t>(1), of.get<int16_t>(2), kElements))
USES(uses_adds_int32, Adds(of.get<int32_t>(0), of.get<int32_t>(1), int32_t{1}, kElements))
USES(uses_relu_float, Relu(of.get<float>(0), of.get<float>(1), kElements))
USES(uses_add_relu_int16, AddRelu(of.get<int16_t>(0), of.get<int16_t>(1), of.get<int16_t>(2), kElements))
USES(uses_leaky_relu, LeakyRelu(of.get<half>(0), of.get<half>(1), half(0.5f), kElements))
USES(uses_maxs, Maxs(of.get<float>(0), of.get<float>(1), 1.0f, kElements))
USES(uses_shift_left, ShiftLeft(of.get<int32_t>(0), of.get<int32_t>(1), int32_t{1}, kElements))
USES(uses_cast_to_bfloat16, Cast(of.get<bfloat16_t>(0), of.get<float>(1), RoundMode::CAST_RINT, kElements))
USES(uses_cast_of_bfloat16, Cast(of.get<float>(0), of.get<bfloat16_t>(1), RoundMode::CAST_NONE, kElements))
USES(uses_cast_float_to_float, Cast(of.get<float>(0), of.get<float>(1), RoundMode::CAST_FLOOR, kElements))
USES(uses_cast_half_to_int16, Cast(of.get<int16_t>(0), of.get<half>(1), RoundMode::CAST_RINT, kElements))
USES(uses_cast_half_to_float, Cast(of.get<float>(0), of.get<half>(1), RoundMode::CAST_NONE, kElements))
USES(uses_compare_int32, Compare(of.get<uint8_t>(0), of.get<int32_t>(1), of.get<int32_t>(2), CMPMODE::EQ, kElements))
USES(uses_compare_scalar, CompareScalar(of.get<uint8_t>(0), of.get<float>(1), 1.0f, CMPMODE::LT, kElements))
USES(uses_gather, Gather(of.get<float>(0), of.get<float>(1), of.get<uint32_t>(2), 0u, kElements))
USES(uses_sort32, Sort32(of.get<float>(0), of.get<float>(2), of.get<uint32_t>(4), 4))
USES(uses_whole_reduce_max_float, WholeReduceMax(of.get<float>(0), of.get<float>(1), 64, 1, 1, 1, 8))
USES(uses_data_copy_pad,
     DataCopyPad(of.get<float>(0), global<float>(y), DataCopyExtParams{1, 12, 0, 0, 0}, DataCopyPadExtParams<float>{}))
USES(uses_set_atomic_max, SetAtomicMax<float>(); SetAtomicNone())
