// SPDX-License-Identifier: Apache-2.0
// Sorted runs, masks that are set apart from the instruction, lists of tensors, and what a kernel says.
#include "copied.h"

using namespace AscendC;

// Merges the consecutive runs of pairs in x, 8 bytes each; `lengths` are in pairs. After the merged pairs y holds how
// many pairs were taken from each run.
template <class T>
__aicore__ inline void MergeRuns(GM_ADDR x, GM_ADDR y, uint32_t count, const uint32_t (&lengths)[4], uint32_t valid,
                                 bool stops, uint32_t repeats) {
  constexpr uint32_t kPair = 8 / sizeof(T);
  Copied<float> data(x, y, count, count + 8);
  MrgSort4Info info;
  for (int i = 0; i < 4; ++i) info.elementLengths[i] = static_cast<uint16_t>(lengths[i]);
  info.ifExhaustedSuspension = stops;
  info.validBit = static_cast<uint16_t>(valid);
  info.repeatTimes = static_cast<uint8_t>(repeats);
  const LocalTensor<T> in = data.in.template ReinterpretCast<T>();
  MrgSortSrcList<T> list;
  list.src1 = in[0];
  list.src2 = in[kPair * lengths[0]];
  list.src3 = in[kPair * (lengths[0] + lengths[1])];
  list.src4 = in[kPair * (lengths[0] + lengths[1] + lengths[2])];
  MrgSort(data.out.template ReinterpretCast<T>(), list, info);
  PipeBarrier<PIPE_ALL>();
  uint16_t taken[4];
  GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);
  for (uint32_t i = 0; i < 4; ++i) data.out.SetValue(count + i, static_cast<float>(taken[i]));
  data.store();
}

extern "C" __global__ __aicore__ void merge(GM_ADDR x, GM_ADDR y, uint32_t count, uint32_t a, uint32_t b, uint32_t c,
                                            uint32_t d, uint32_t valid, bool stops, uint32_t repeats, bool is_half) {
  const uint32_t lengths[] = {a, b, c, d};
  if (is_half) {
    MergeRuns<half>(x, y, count, lengths, valid, stops, repeats);
  } else {
    MergeRuns<float>(x, y, count, lengths, valid, stops, repeats);
  }
}

// y = the scores and the indices of x, sorted in runs of 32 or whole.
extern "C" __global__ __aicore__ void sort(GM_ADDR x, GM_ADDR y, uint32_t count, bool whole) {
  Copied<float> data(x, y, count, 2 * count);
  TBuf<> index_buffer, sorted_buffer, work_buffer;
  data.pipe.InitBuffer(index_buffer, count * sizeof(uint32_t));
  data.pipe.InitBuffer(sorted_buffer, GetSortLen<float>(count));
  data.pipe.InitBuffer(work_buffer, GetSortLen<float>(count));
  LocalTensor<uint32_t> index = index_buffer.Get<uint32_t>();
  LocalTensor<float> concat, sorted = sorted_buffer.Get<float>(), work = work_buffer.Get<float>();
  CreateVecIndex(index.ReinterpretCast<int32_t>(), 0, count);
  const auto repeats = static_cast<int32_t>(count / 32);
  Concat(concat, data.in, work, repeats);
  if (whole) {
    Sort<float, true>(sorted, concat, index, work, repeats);
  } else {
    Sort<float, false>(sorted, concat, index, work, repeats);
  }
  Extract(data.out, data.out[count].ReinterpretCast<uint32_t>(), sorted, repeats);
  data.store();
}

// y[i] += 1 for the elements that a mask selects which is set before: the first `elements` in counter mode, or the bits
// of `low` in each of three repeats.
extern "C" __global__ __aicore__ void masked(GM_ADDR y, uint32_t elements, uint64_t low) {
  Copied<float> data(y, y, 192, 192);
  if (elements != 0) {
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(static_cast<int32_t>(elements));
  } else {
    SetMaskNorm();
    SetVectorMask<float, MaskMode::NORMAL>(0, low);
  }
  Adds<float, false>(data.out, data.out, 1.0f, MASK_PLACEHOLDER, 3, {1, 1, 8, 8});
  SetMaskNorm();
  ResetMask();
  PipeBarrier<PIPE_V>();
  Adds<float, false>(data.out, data.out, 1.0f, MASK_PLACEHOLDER, 3, {1, 1, 8, 8});
  data.store();
}

// Says what it finds in a list of tensors.
extern "C" __global__ __aicore__ void listed(GM_ADDR list) {
  const ListTensorDesc tensors(list);
  for (uint32_t i = 0; i < tensors.GetSize(); ++i) {
    uint64_t shape[8];
    TensorDesc<int32_t> tensor;
    tensor.SetShapeAddr(shape);
    tensors.GetDesc(tensor, i);
    PRINTF("%d: %d dimensions, first %d, at %llx\n", i, static_cast<int>(tensor.GetDim()),
           static_cast<int>(tensor.GetShape(0)), reinterpret_cast<unsigned long long>(tensor.GetDataPtr()));
  }
}

// Doubles 64 numbers in tensors of an allocator, which rounds sizes up to whole blocks: the second follows one of 33
// bytes.
extern "C" __global__ __aicore__ void allocated(GM_ADDR x, GM_ADDR y) {
  InitSocState();
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 64);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 64);
  LocalMemAllocator<Hardware::UB> allocator;
  allocator.Alloc<TPosition::VECCALC, int8_t, 33>();
  ASSERT(allocator.GetCurAddr() == 32 * DivCeil(33, 32));
  const LocalTensor<float> a = allocator.Alloc<float, 64>(), b = allocator.Alloc<TPosition::VECCALC, float>(64);
  DataCopy(a, from, 64);
  PipeBarrier<PIPE_ALL>();
  Add(b, a, a, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, b, 64);
  ASSERT(::GetBlockNum() == 1 && ::GetBlockIdx() == 0);
}

extern "C" __global__ __vector__ void says(GM_ADDR x) {
  Copied<float> data(x, x, 8, 8);
  if ASCEND_IS_AIV {
    printf("half %g, int %ld\n", half(0.5f), max(3, int64_t{4}));
  }
  if ASCEND_IS_AIC {
    printf("never, %d\n", 0);
  }
  DumpTensor(data.in, 7, 3);
  DumpAccChkPoint(data.x, 8, 6, 2);
  const uint32_t sizes[] = {2, 2, 2};
  DumpTensor(data.in, 9, 7, ShapeInfo(3, sizes));
  DumpTensor(data.x, 10, 4, ShapeInfo(2, sizes));
  const int64_t start = GetSystemCycle();
  assert(GetSystemCycle() >= start, "the clock went back by %d", 1);
  ASCENDC_ASSERT(data.in.GetSize() == 9, { KERNEL_LOG(KERNEL_ERROR, "there are %u", data.in.GetSize()); });
}

// A queue of CO2, which is device memory, next to one that is used, if `takes` is not set.
extern "C" __global__ __aicore__ void queue_of_co2(GM_ADDR y, bool takes) {
  Copied<float> data(y, y, 8, 8);
  TQue<TPosition::CO2, 1> queue;
  data.pipe.InitBuffer(queue, 1, 1024);
  if (takes) queue.AllocTensor<float>();
  Adds(data.out, data.out, 1.0f, 8);
  data.store();
}

// Tensors with an address set by hand, and the positions of the tensors before and after them.
extern "C" __global__ __aicore__ void placed_by_hand(GM_ADDR x, GM_ADDR y) {
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 64);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 64);
  LocalTensor<float> read, written;
  read.InitBuffer(64, 64);
  read.address_.logicPos = static_cast<uint8_t>(TPosition::VECIN);
  written.address_.logicPos = static_cast<uint8_t>(TPosition::VECOUT);
  written.InitBuffer(1024, 64);
  DataCopy(read, from, 64);
  PipeBarrier<PIPE_ALL>();
  Adds(written, LocalTensor<float>(TPosition::VECIN, 64, 64), 1.0f, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, written, 64);
}
