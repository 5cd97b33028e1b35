// SPDX-License-Identifier: Apache-2.0
// What kernels of public projects use: parts of tensors by slices, shapes noted, results queued once more, activations,
// and their own names in AscendC.
#include "copied.h"

namespace AscendC {

// As some projects define them, which no name of the headers may keep from them.
constexpr HardEvent GetHardEventByPipe(pipe_t from, pipe_t to) {
  return from == PIPE_V && to == PIPE_MTE3 ? HardEvent::V_MTE3 : HardEvent::MTE2_V;
}
struct MaskArgument {};
struct RepeatArgument {};
class BufferPool {};
enum class CoreKind { kVector };

}  // namespace AscendC

using namespace AscendC;

static_assert(sizeof(fp8_e8m0_t) == 1 && sizeof(AscendC::fp8_e5m2_t) == 1 && sizeof(complex64) == 8);
static_assert(!std::is_same_v<fp8_e4m3fn_t, hifloat8_t>);

namespace {

template <int32_t core>
struct OfCore {};
using Cores = std::tuple<OfCore<AscendC::AIC>, OfCore<AIV>>;
static_assert(!std::is_same_v<std::tuple_element_t<0, Cores>, std::tuple_element_t<1, Cores>>);

constexpr SoftMaxTiling kTiling = SoftMaxFlashV2TilingFunc(SoftMaxShapeInfo{4, 16, 4, 16}, 4, 4, 8192, true, false);
static_assert(kTiling.srcM == 4 && kTiling.srcK == 16 && kTiling.reduceSize == 32);

template <class T>
struct WithWork : Copied<T> {
  WithWork(GM_ADDR x, GM_ADDR y, uint32_t count, uint32_t out_count) : Copied<T>(x, y, count, out_count) {
    this->pipe.InitBuffer(work_buffer, 256);
    work = work_buffer.template Get<uint8_t>();
  }

  TBuf<> work_buffer;
  LocalTensor<uint8_t> work;
};

}  // namespace

// y += x * x of the first half of each repeat.
extern "C" __global__ __aicore__ void multiplied_into(GM_ADDR x, GM_ADDR y, uint32_t count) {
  WithWork<float> data(x, y, count, count);
  SetMaskNorm();
  SetVectorMask<float>(0, (uint64_t{1} << 32) - 1);
  MulAddDst<float, float, false>(data.out, data.in, data.in, MASK_PLACEHOLDER, static_cast<uint8_t>(count / 64),
                                 BinaryRepeatParams{1, 1, 1, 8, 8, 8});
  ResetMask();
  data.store();
}

// Both cores of a block wait for each other, by the older names.
extern "C" __global__ __aicore__ void by_older_names(GM_ADDR x) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  SetSyncBaseAddr(0);
  if ASCEND_IS_AIV {
    CrossCoreSetFlag<2, PIPE_MTE3>(1);
    WaitEvent(2);
    GlobalTensor<float> to;
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 8);
    to.SetValue(0, g_coreType == AIV ? 1.0f : 2.0f);
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(to);
  } else {
    WaitEvent(1);
    CrossCoreSetFlag<2, PIPE_FIX>(2);
  }
}

// y = the pieces of x, 3 rows of 40 elements: of rows 0 and 2 the elements 8 to 15 and 24 to 31; z = y, a column apart.
extern "C" __global__ __aicore__ void slices(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t end) {
  ICachePreLoad(2);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 32 * sizeof(float));
  GlobalTensor<float> from, to, apart;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 120);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 32);
  apart.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(z), 36);
  LocalTensor<float> tensor = buffer.Get<float>();
  SliceInfo source[] = {{8, end, 8, 1, 40}, {0, 2, 1, 1, 3}};
  SliceInfo dense[] = {{0, 15, 0, 1, 16}, {0, 1, 0, 1, 2}};
  SliceInfo gaps[] = {{0, 16, 1, 1, 18}, {0, 1, 0, 1, 2}};
  DataCopy(tensor, from, dense, source, 2);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, tensor, dense, dense, 2);
  DataCopy(apart, tensor, gaps, dense, 2);
}

// y = x + 1 by a queue whose tensor goes through it twice.
extern "C" __global__ __aicore__ void queued_again(GM_ADDR x, GM_ADDR y, uint32_t count) {
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  pipe.InitBuffer(in, 1, count * sizeof(float));
  pipe.InitBuffer(out, 1, count * sizeof(float));
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), count);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), count);
  LocalTensor<float> tensor = in.AllocTensor<float>();
  DataCopy(tensor, from, DataCopyParams{1, static_cast<uint16_t>(count / 8), 0, 0}, DataCopyEnhancedParams());
  in.EnQue(tensor);
  tensor = in.DeQue<float>();
  Adds(tensor, tensor, 1.0f, static_cast<int32_t>(count));
  in.EnQue(tensor);
  tensor = in.DeQue<float>();
  LocalTensor<float> result = out.AllocTensor<float>();
  const uint32_t sizes[] = {count / 8, 8};
  result.SetShapeInfo(ShapeInfo(2, sizes, DataFormat::ND));
  Adds(result, tensor, 0.0f, static_cast<int32_t>(GetShapeSize(result.GetShapeInfo())));
  out.EnQue(result);
  in.FreeTensor(tensor);
  result = out.DeQue<float>();
  DataCopy(to, result, count);
  out.FreeTensor(result);
}

// From L0C there is no way to the unified buffer on this chip.
extern "C" __global__ __aicore__ void from_l0c(GM_ADDR /*x*/) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  if ASCEND_IS_AIC {
    const LocalTensor<float> sums(TPosition::CO1, 0, 256);
    const LocalTensor<half> to(TPosition::A1, 0, 256);
    DataCopyEnhancedParams enhanced;
    enhanced.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    DataCopy(to, sums, DataCopyParams{1, 1, 0, 0}, enhanced);
  }
}

namespace {

template <class T>
void activation_of(GM_ADDR x, GM_ADDR y, uint32_t count, uint32_t which) {
  WithWork<T> data(x, y, 2 * count, count);
  const LocalTensor<T>&in = data.in, &out = data.out;
  const LocalTensor<T> other = in[count];
  switch (which) {
    case 0:
      return FasterGelu<T, false, false>(out, in, data.work, count), data.store();
    case 1:
      return FasterGeluV2(out, in, count), data.store();
    case 2:
      return GeGLU<T, false>(out, in, other, data.work, count), data.store();
    case 3:
      return ReGlu(out, in, other, count), data.store();
    case 4:
      return Gelu<T, true, false>(out, in, data.work, count), data.store();
    case 5:
      return Lgamma<T, false>(out, in, data.work, count), data.store();
    case 6:
      return Fmod(out, in, other, data.work, count), data.store();
    case 7:
      return Hypot(out, in, other, count), data.store();
    case 8:
      return Exp<T, 5, true>(out, in, data.work, count), data.store();
    case 9:
      return Rint(out, in, count), data.store();
    default:
      LocalTensor<T> whole = in;
      whole.SetSize(count);
      return Tanh<T, false>(out, whole), data.store();
  }
}

}  // namespace

extern "C" __global__ __aicore__ void activation(GM_ADDR x, GM_ADDR y, uint32_t count, uint32_t which, bool is_half) {
  is_half ? activation_of<half>(x, y, count, which) : activation_of<float>(x, y, count, which);
}

// y = sums along the rows of x or along its columns, followed by the last row.
extern "C" __global__ __aicore__ void cumulated(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns, bool last) {
  WithWork<float> data(x, y, rows * columns, (rows + 1) * columns);
  LocalTensor<float> row = data.out[rows * columns];
  const CumSumInfo info{rows, columns};
  static constexpr CumSumConfig kFirst{false, false, true};
  if (last) {
    CumSum(data.out, row, data.in, data.work, info);
  } else {
    CumSum<float, kFirst>(data.out, row, data.in, info);
  }
  data.store();
}

// y = for the rows of x: the gradient of the softmax, which follows them in x, its first part, or the decimal
// logarithm of their softmax.
extern "C" __global__ __aicore__ void softmax_parts(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t columns,
                                                    uint32_t which) {
  WithWork<float> data(x, y, 2 * rows * columns, rows * columns + 16 * rows);
  const LocalTensor<float> src = data.in[rows * columns], sums = data.out[rows * columns], maxima = sums[8 * rows];
  SoftMaxTiling tiling;
  tiling.srcM = rows, tiling.srcK = columns;
  LogSoftMaxTiling log_tiling;
  log_tiling.srcM = rows, log_tiling.srcK = columns;
  if (which == 0) SoftmaxGrad<float>(data.out, data.in, src, data.work, tiling);
  if (which == 1) SoftmaxGradFront<float>(sums, data.in, src, tiling);
  if (which == 2) LogSoftMax<float>(data.out, sums, maxima, data.in, data.work, log_tiling);
  if (which == 3) {
    const SoftMaxShapeInfo shape{rows, columns, rows, columns};
    SoftMax<float>(data.out, sums, maxima, data.in, tiling, shape);
    PipeBarrier<PIPE_ALL>();
    const uint32_t first = std::bit_cast<uint32_t>(maxima.GetValue(0));
    AdjustSoftMaxRes<float, float>(data.out, maxima, first, -1.0f, shape);
  }
  if (which == 4) {
    SoftmaxFlash<float>(data.out, sums, maxima, data.in, src, sums, maxima, data.work, tiling, false);
    PipeBarrier<PIPE_V>();
    SoftmaxFlash<float>(data.out, sums, maxima, src, data.in, sums, maxima, tiling, true);
  }
  data.store();
}

// y = x as integers of 4 bits and back; z = the integers from the 16th on, as they lie.
extern "C" __global__ __aicore__ void four_bits(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t count) {
  WithWork<half> data(x, y, count, count);
  TBuf<> buffer;
  data.pipe.InitBuffer(buffer, count / 2);
  const LocalTensor<int4b_t> packed = buffer.Get<int4b_t>();
  ASSERT(packed.GetSize() == count && packed[2].GetSize() == count - 2);
  Cast(packed, data.in, RoundMode::CAST_RINT, count);
  PipeBarrier<PIPE_ALL>();
  Cast(data.out, packed, RoundMode::CAST_NONE, count);
  GlobalTensor<int4b_t> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int4b_t*>(z), count);
  DataCopy(to[64], packed[64], count - 64);
  data.store();
}

// The numbers that cores read by the names of the device's compiler, 16 for each vector core.
extern "C" __global__ __aicore__ void registers(GM_ADDR x) {
  PRELOAD(2);
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if ASCEND_IS_AIC {
    if (block_idx >= get_block_num()) *reinterpret_cast<__gm__ int32_t*>(x) = -1;
    return;
  }
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(x) + 16 * GetBlockIdx(), 16);
  const int64_t values[] = {block_idx, get_block_idx(), get_block_num(), get_subblockid(), get_subblockdim()};
  for (uint32_t i = 0; i < 5; ++i) out.SetValue(i, static_cast<int32_t>(values[i]));
  DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(out);
}
