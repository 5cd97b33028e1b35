// SPDX-License-Identifier: Apache-2.0
// The Matmul library on cube cores alone.
#define ASCENDC_CUBE_ONLY
#include "kernel_operator.h"
#include "lib/matmul_intf.h"

using namespace matmul;

namespace {

template <class T>
GlobalTensor<T> global(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
  return tensor;
}

template <class T>
using Of = MatmulType<TPosition::GM, CubeFormat::ND, T>;

}  // namespace

extern "C" __global__ __aicore__ void hf32(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling, bool on, int32_t mode) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  Matmul<Of<float>, Of<float>, Of<float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &tiling);
  mm.SetTensorA(global<float>(a));
  mm.SetTensorB(global<float>(b));
  mm.SetHF32(on, mode);
  mm.IterateAll(global<float>(c));
  mm.SetHF32(false);
  mm.End();
}

// Blocks in L0C, which Fixpipe takes from there. With `sums`, of one block: both halves of K onto the same sums.
template <class T, class Sum>
void multiply_in_co1(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling& t, bool sums, bool waits) {
  TPipe pipe;
  Matmul<Of<T>, Of<T>, MatmulType<TPosition::CO1, CubeFormat::NZ, Sum>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  TQue<TPosition::CO1, 1> queue;
  pipe.InitBuffer(queue, 1, t.baseM * t.baseN * sizeof(Sum));
  mm.SetTensorA(global<T>(a));
  mm.SetTensorB(global<T>(b));
  if (sums) mm.SetSingleShape(t.M, t.N, t.Ka / 2);
  for (int32_t n = 0; n < t.N; n += t.baseN) {
    for (int32_t m = 0; m < t.M; m += t.baseM) {
      const LocalTensor<Sum> block = queue.AllocTensor<Sum>();
      ASSERT(mm.Iterate(false, block));
      if (sums) {
        mm.SetTensorA(global<T>(a)[t.Ka / 2]);
        mm.SetTensorB(global<T>(b)[t.Kb / 2 * t.N]);
        ASSERT(mm.Iterate(true, block));
      }
      if (waits) {
        queue.EnQue(block);
        queue.DeQue<Sum>();
      }
      FixpipeParamsV220 params;
      params.mSize = static_cast<uint16_t>(t.M - m < t.baseM ? t.M - m : t.baseM);
      params.nSize = static_cast<uint16_t>(t.N - n < t.baseN ? t.N - n : t.baseN);
      params.srcStride = static_cast<uint16_t>(AlignUp(static_cast<uint32_t>(params.mSize), 16u));
      params.dstStride = static_cast<uint32_t>(t.N);
      Fixpipe<Sum, Sum, CFG_ROW_MAJOR>(global<Sum>(c)[m * t.N + n], block, params);
      queue.FreeTensor(block);
    }
  }
  mm.End();
}

extern "C" __global__ __aicore__ void in_co1(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling, bool is_int8,
                                             bool sums, bool waits) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  if (is_int8) {
    multiply_in_co1<int8_t, int32_t>(a, b, c, tiling, sums, waits);
  } else {
    multiply_in_co1<half, float>(a, b, c, tiling, sums, waits);
  }
}

extern "C" __global__ __aicore__ void cube_batches(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling,
                                                   int32_t batches) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  constexpr auto kLayout = LayoutMode::NORMAL;
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half, false, kLayout>,
         MatmulType<TPosition::GM, CubeFormat::ND, half, false, kLayout>,
         MatmulType<TPosition::GM, CubeFormat::ND, float, false, kLayout>>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &tiling);
  mm.SetTensorA(global<half>(a));
  mm.SetTensorB(global<half>(b));
  mm.SetBatchNum(batches, batches);
  mm.IterateBatch(global<float>(c), false, 0, false);
  mm.End();
}
