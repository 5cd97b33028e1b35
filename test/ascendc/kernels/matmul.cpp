// SPDX-License-Identifier: Apache-2.0
// The Matmul library: each core multiplies its part of the matrices, in every form in which results come.
#include "kernel_operator.h"
#include "lib/matmul_intf.h"

using namespace matmul;

static_assert(CeilDiv(int64_t{7}, 2) == 4 && CeilDiv(7u, uint64_t{7}) == 1 && CeilDiv(7, 0) == 0 &&
              CeilAlign(17u, 16) == 32);

enum Form : uint32_t { ALL, ALL_LATER, BLOCKS, BLOCKS_IN_UB, LATER, HALVES_OF_K, SUMS };

namespace {

template <class T>
GlobalTensor<T> global(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
  return tensor;
}

// Where a core's part begins, and how large it is.
struct Part {
  int32_t m, n, rows, columns;

  explicit Part(const TCubeTiling& t) {
    const auto along_m = (t.M + t.singleCoreM - 1) / t.singleCoreM;
    const auto core = static_cast<int32_t>(GetBlockIdx());
    m = core % along_m * t.singleCoreM;
    n = core / along_m * t.singleCoreN;
    rows = t.M - m < t.singleCoreM ? t.M - m : t.singleCoreM;
    columns = t.N - n < t.singleCoreN ? t.N - n : t.singleCoreN;
  }
};

// Blocks of C from the unified buffer, each to its place, by columns of blocks. The vector unit fills them, or, without
// it, the copy that GetTensorC<false> begins.
template <class T, TPosition from>
class Blocks {
 public:
  Blocks(TPipe& pipe, const TCubeTiling& t, const Part& part, const GlobalTensor<T>& c) : t_(t), part_(part), c_(c) {
    pipe.InitBuffer(queue_, 1, t.baseM * t.baseN * sizeof(T));
  }
  LocalTensor<T> begin() { return queue_.template AllocTensor<T>(); }
  void end(const LocalTensor<T>& block) {
    const int32_t along_m = (part_.rows + t_.baseM - 1) / t_.baseM;
    const int32_t i = number_ % along_m * t_.baseM, j = number_ / along_m * t_.baseN;
    ++number_;
    const int32_t rows = part_.rows - i < t_.baseM ? part_.rows - i : t_.baseM;
    const int32_t columns = part_.columns - j < t_.baseN ? part_.columns - j : t_.baseN;
    queue_.EnQue(block);
    const LocalTensor<T> filled = queue_.template DeQue<T>();
    const auto bytes = static_cast<uint32_t>(columns * sizeof(T));
    DataCopyPad(c_[i * t_.N + j], filled,
                DataCopyExtParams{static_cast<uint16_t>(rows), bytes, 0,
                                  static_cast<int64_t>((t_.N - columns) * sizeof(T)), 0});
    queue_.FreeTensor(filled);
  }

 private:
  TQueBind<from, TPosition::VECOUT, 1> queue_;
  const TCubeTiling& t_;
  const Part& part_;
  GlobalTensor<T> c_;
  int32_t number_ = 0;
};

template <class T, class C, class Bias, const auto& config, CubeFormat format>
void multiply_parts(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, GM_ADDR workspace, TCubeTiling& t, bool across_a,
                    bool across_b, uint32_t form, uint64_t scale) {
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, T, true>, MatmulType<TPosition::GM, CubeFormat::ND, T, true>,
         MatmulType<TPosition::VECIN, format, C>, MatmulType<TPosition::GM, CubeFormat::ND, Bias>, config>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() >= t.usedCoreNum) return;
  const Part part(t);
  const auto of_a = global<T>(a)[across_a ? part.m : part.m * t.Ka];
  const auto of_b = global<T>(b)[across_b ? part.n * t.Kb : part.n];
  const auto of_c = global<C>(c)[part.m * t.N + part.n];
  mm.SetOrgShape(t.M, t.N, t.Ka, t.Kb);
  mm.SetTail(part.rows, part.columns);
  mm.SetTensorA(of_a, across_a);
  mm.SetTensorB(of_b, across_b);
  if (bias != nullptr) mm.SetBias(global<Bias>(bias)[part.n]);
  if constexpr (std::is_same_v<C, int8_t> || (std::is_same_v<T, int8_t> && std::is_same_v<C, half>)) {
    if (workspace != nullptr) {
      mm.SetQuantVector(global<uint64_t>(workspace)[part.n]);
    } else {
      mm.SetQuantScalar(scale);
    }
  }
  if (form == ALL) {
    mm.IterateAll(of_c);
  } else if (form == ALL_LATER) {
    mm.template IterateAll<false>(of_c, 0, false, true);
    mm.WaitIterateAll();
  } else if (form == BLOCKS) {
    while (mm.Iterate()) mm.GetTensorC(of_c);
  } else if (form == BLOCKS_IN_UB) {
    Blocks<C, TPosition::VECOUT> blocks(pipe, t, part, of_c);
    while (mm.Iterate()) {
      const LocalTensor<C> block = blocks.begin();
      mm.GetTensorC(block, 0, true);
      if constexpr (sizeof(C) == 4) Adds(block, block, C(0), 8);
      blocks.end(block);
    }
  } else if (form == LATER) {
    Blocks<C, TPosition::VECIN> blocks(pipe, t, part, of_c);
    auto room = global<C>(workspace)[GetBlockIdx() * t.singleCoreM * t.singleCoreN];
    mm.SetWorkspace(room);
    mm.template Iterate<false>();
    const int32_t count = Ceil(part.rows, t.baseM) * Ceil(part.columns, t.baseN);
    for (int32_t i = 0; i < count; ++i) {
      const LocalTensor<C> block = blocks.begin();
      mm.template GetTensorC<false>(block);
      mm.WaitGetTensorC();
      blocks.end(block);
    }
  } else if (form == HALVES_OF_K) {
    mm.SetSingleShape(part.rows, part.columns, t.Ka / 2);
    mm.IterateAll(of_c);
    mm.SetTensorA(of_a[across_a ? t.Ka / 2 * t.M : t.Ka / 2], across_a);
    mm.SetTensorB(of_b[across_b ? t.Kb / 2 : t.Kb / 2 * t.N], across_b);
    mm.DisableBias();
    mm.IterateAll(of_c, 1);
  } else if (form == SUMS) {  // of one block: both halves of K onto the same sums
    for (int32_t half_of_k = 0; half_of_k < 2; ++half_of_k) {
      mm.SetSingleShape(part.rows, part.columns, t.Ka / 2);
      mm.SetTensorA(of_a[half_of_k * (across_a ? t.Ka / 2 * t.M : t.Ka / 2)], across_a);
      mm.SetTensorB(of_b[half_of_k * (across_b ? t.Kb / 2 : t.Kb / 2 * t.N)], across_b);
      mm.Iterate(half_of_k != 0);
      mm.DisableBias();
    }
    mm.GetTensorC(of_c);
  }
  mm.End();
}

// A and B through the unified buffer, or as fractals; C as fractals.
template <TPosition position, CubeFormat format>
void multiply_local(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling& t, bool across_a, bool across_b) {
  using T = half;
  TPipe pipe;
  Matmul<MatmulType<position, format, T, true>, MatmulType<position, format, T, true>,
         MatmulType<TPosition::GM, format, float>>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() != 0) return;
  if constexpr (position == TPosition::GM) {
    mm.SetTensorA(global<T>(a), across_a);
    mm.SetTensorB(global<T>(b), across_b);
    mm.IterateAll(global<float>(c));
  } else {
    TQue<TPosition::VECOUT, 1> queue_a, queue_b;
    const auto load = [&](TQue<TPosition::VECOUT, 1>& queue, GM_ADDR from, uint32_t count) {
      TBuf<> buffer;
      pipe.InitBuffer(queue, 1, count * sizeof(T));
      pipe.InitBuffer(buffer, count * sizeof(T));
      const LocalTensor<T> raw = buffer.Get<T>();
      DataCopy(raw, global<T>(from), count);
      PipeBarrier<PIPE_ALL>();
      const LocalTensor<T> doubled = queue.AllocTensor<T>();
      Adds(doubled, raw, T(0), static_cast<int32_t>(count));
      queue.EnQue(doubled);
      return queue.DeQue<T>();
    };
    const LocalTensor<T> local_a = load(queue_a, a, t.singleCoreM * t.singleCoreK);
    const LocalTensor<T> local_b = load(queue_b, b, t.singleCoreN * t.singleCoreK);
    mm.SetTensorA(local_a, across_a);
    mm.SetTensorB(local_b, across_b);
    mm.IterateAll(global<float>(c));
    queue_a.FreeTensor(local_a);
    queue_b.FreeTensor(local_b);
  }
  mm.End();
}

constexpr MatmulConfig kRowsFirst =
    GetNormalConfig(false, false, false, BatchMode::BATCH_LESS_THAN_L1, true, IterateOrder::ORDER_N);

// The shape of the base tiles, and the row lengths of A and B, which are arguments of the kernel.
struct Rows {
  int32_t base_m, base_n, base_k, columns_of_a, columns_of_b;
};
void copy_block(const LocalTensor<half>& to, const __gm__ void* gm, int64_t first, int rows, int columns, int row) {
  GlobalTensor<half> from;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(const_cast<__gm__ void*>(gm)) + first);
  DataCopy(to, from,
           Nd2NzParams(1, static_cast<uint32_t>(rows), static_cast<uint32_t>(columns), 0, static_cast<uint32_t>(row),
                       AlignUp(static_cast<uint32_t>(rows), 16u), 1, 0));
}
// Backwards: takes the last row of blocks of A as the first one if the data asks for it.
void copy_a(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int useM, int useK,
            const uint64_t tiling, const uint64_t data) {
  const Rows& rows = *reinterpret_cast<const Rows*>(tiling);
  const int64_t block = data != 0 ? static_cast<int64_t>(data) - 1 - row : row;
  copy_block(to.ReinterpretCast<half>(), gm, block * rows.base_m * rows.columns_of_a + col * rows.base_k, useM, useK,
             rows.columns_of_a);
}
void copy_b(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int useK, int useN,
            const uint64_t tiling, const uint64_t) {
  const Rows& rows = *reinterpret_cast<const Rows*>(tiling);
  copy_block(to.ReinterpretCast<half>(), gm, int64_t{row} * rows.base_k * rows.columns_of_b + col * rows.base_n, useK,
             useN, rows.columns_of_b);
}

constexpr MatmulConfig kManyBatches = GetNormalConfig(false, true);

constexpr MatmulShapeParams kShape = {64, 48, 32, 32, 16, 32};
constexpr MatmulConfig kConstant = GetMMConfig<MatmulConfigMode::CONFIG_NORM>(kShape);
using ConstantType = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using ConstantSum = MatmulType<TPosition::GM, CubeFormat::ND, float>;
constexpr MatmulApiStaticTiling kConstantTiling =
    GetMatmulApiTiling<ConstantType, ConstantType, ConstantSum, ConstantSum>(kConstant);
static_assert(kConstantTiling.baseM == 32 && kConstantTiling.singleCoreK == 32 && kConstantTiling.stepKa == 1);

}  // namespace

enum Types : uint32_t { HALF_FLOAT, HALF_HALF, HALF_INT8, BFLOAT16, FLOAT, INT8_INT32, INT8_HALF, INT8_INT8 };

extern "C" __global__ __aicore__ void multiply(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, GM_ADDR workspace,
                                               TCubeTiling tiling, bool across_a, bool across_b, uint32_t types,
                                               uint32_t form, uint64_t scale) {
#define MULTIPLY(which, T, C, Bias, config, format) \
  if (types == which)                               \
  multiply_parts<T, C, Bias, config, format>(a, b, bias, c, workspace, tiling, across_a, across_b, form, scale)
  if (form == BLOCKS_IN_UB || form == LATER) {
    MULTIPLY(HALF_FLOAT, half, float, float, CFG_NORM, CubeFormat::ND_ALIGN);
    return;
  }
  MULTIPLY(HALF_FLOAT, half, float, float, CFG_NORM, CubeFormat::ND);
  MULTIPLY(HALF_HALF, half, half, half, CFG_MDL, CubeFormat::ND);
  MULTIPLY(HALF_INT8, half, int8_t, float, CFG_NORM, CubeFormat::ND);
  MULTIPLY(BFLOAT16, bfloat16_t, bfloat16_t, float, CFG_IBSHARE_NORM, CubeFormat::ND);
  MULTIPLY(FLOAT, float, float, float, CFG_NORM, CubeFormat::ND);
  MULTIPLY(INT8_INT32, int8_t, int32_t, int32_t, CFG_NORM, CubeFormat::ND);
  MULTIPLY(INT8_HALF, int8_t, half, int32_t, CFG_NORM, CubeFormat::ND);
  MULTIPLY(INT8_INT8, int8_t, int8_t, int32_t, CFG_NORM, CubeFormat::ND);
#undef MULTIPLY
}

extern "C" __global__ __aicore__ void multiply_in_place(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling,
                                                        bool across_a, bool across_b, uint32_t form) {
  if (form == 0) multiply_local<TPosition::VECOUT, CubeFormat::ND>(a, b, c, tiling, across_a, across_b);
  if (form == 1) multiply_local<TPosition::VECOUT, CubeFormat::NZ>(a, b, c, tiling, across_a, across_b);
  if (form == 2) multiply_local<TPosition::GM, CubeFormat::NZ>(a, b, c, tiling, across_a, across_b);
}

// d = (a b) e: two objects, the second on what the first has made.
extern "C" __global__ __aicore__ void chain(GM_ADDR a, GM_ADDR b, GM_ADDR e, GM_ADDR workspace, GM_ADDR d,
                                            TCubeTiling first, TCubeTiling second) {
  TPipe pipe;
  using Of = MatmulType<TPosition::GM, CubeFormat::ND, float>;
  Matmul<Of, Of, Of> one;
  Matmul<Of, Of, Of, Of, kRowsFirst> other;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), one, &first, other);
  other.Init(&second);
  if (GetBlockIdx() != 0) return;
  one.SetTensorA(global<float>(a));
  one.SetTensorB(global<float>(b));
  one.IterateAll(global<float>(workspace));
  one.End();
  other.SetTensorA(global<float>(workspace));
  other.SetTensorB(global<float>(e));
  while (other.Iterate()) other.GetTensorC(global<float>(d));
  other.End();
}

// One number for A: the sums of B's columns, times it; by a tiling that the compiler knows.
extern "C" __global__ __aicore__ void constant(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR sums) {
  TPipe pipe;
  Matmul<ConstantType, ConstantType, ConstantSum, ConstantSum, kConstantTiling> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, static_cast<TCubeTiling*>(nullptr));
  if (GetBlockIdx() != 0) return;
  mm.SetTensorA(global<half>(a));
  mm.SetTensorB(global<half>(b));
  mm.IterateAll(global<float>(c));
  mm.SetSingleShape(1, 48, 32);
  mm.SetTensorA(half(2));
  mm.IterateAll(global<float>(sums));
  mm.End();
}

template <LayoutMode layout, LayoutMode of_c>
void multiply_batches(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, TCubeTiling& t, uint32_t batch_a,
                      uint32_t batch_b) {
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half, false, layout>,
         MatmulType<TPosition::GM, CubeFormat::ND, half, true, layout>,
         MatmulType<TPosition::GM, CubeFormat::ND, float, false, of_c>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() != 0) return;
  mm.SetTensorA(global<half>(a));
  mm.SetTensorB(global<half>(b), true);
  if (bias != nullptr) mm.SetBias(global<float>(bias));
  mm.IterateBatch(global<float>(c), batch_a, batch_b, false);
  mm.End();
}

extern "C" __global__ __aicore__ void batches(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, TCubeTiling tiling,
                                              uint32_t batch_a, uint32_t batch_b, uint32_t layout) {
  if (layout == 0) multiply_batches<LayoutMode::NORMAL, LayoutMode::NORMAL>(a, b, bias, c, tiling, batch_a, batch_b);
  if (layout == 1) multiply_batches<LayoutMode::BSNGD, LayoutMode::BNGS1S2>(a, b, bias, c, tiling, batch_a, batch_b);
  if (layout == 2) multiply_batches<LayoutMode::SBNGD, LayoutMode::SBNGD>(a, b, bias, c, tiling, batch_a, batch_b);
}

// The author's functions copy A and B, or B alone.
template <auto of_a>
void multiply_copied(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling& t, Rows& rows, uint64_t data, bool across) {
  TPipe pipe;
  using Of = MatmulType<TPosition::GM, CubeFormat::ND, half, true>;
  using Sum = MatmulType<TPosition::GM, CubeFormat::ND, float>;
  Matmul<Of, Of, Sum, Sum, CFG_NORM, MatmulCallBackFunc<nullptr, of_a, copy_b>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() != 0) return;
  mm.SetUserDefInfo(reinterpret_cast<uint64_t>(&rows));
  mm.SetSelfDefineData(data);
  mm.SetTensorA(global<half>(a));
  mm.SetTensorB(global<half>(b), across);
  mm.IterateAll(global<float>(c));
  mm.End();
}

extern "C" __global__ __aicore__ void copied_by_author(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling, Rows rows,
                                                       bool both, uint64_t data, bool across) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if (both) {
    multiply_copied<copy_a>(a, b, c, tiling, rows, data, across);
  } else {
    multiply_copied<nullptr>(a, b, c, tiling, rows, data, across);
  }
}

// Several times as many batches, fetched from the workspace as they are, or through the unified buffer.
template <LayoutMode layout, LayoutMode of_c>
void multiply_many_batches(GM_ADDR a, GM_ADDR b, GM_ADDR workspace, GM_ADDR c, TCubeTiling& t, uint32_t loops,
                           uint32_t fetched, uint32_t batch_a, uint32_t batch_b, bool through_ub) {
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half, false, layout>,
         MatmulType<TPosition::GM, CubeFormat::ND, half, true, layout>,
         MatmulType<TPosition::VECIN, CubeFormat::ND, float, false, of_c>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>, kManyBatches>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() != 0) return;
  mm.SetTensorA(global<half>(a));
  mm.SetTensorB(global<half>(b), true);
  if (workspace != nullptr) mm.SetWorkspace(reinterpret_cast<const __gm__ float*>(workspace), 1 << 20);
  const uint32_t elements = (batch_a > batch_b ? batch_a : batch_b) * t.singleCoreM * t.singleCoreN;
  if (through_ub) {
    mm.template IterateNBatch<false>(loops, batch_a, batch_b, false);
  } else {
    mm.IterateNBatch(loops, batch_a, batch_b, false);
  }
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 1, elements * sizeof(float));
  for (uint32_t i = 0; i < fetched; ++i) {
    const LocalTensor<float> local = queue.AllocTensor<float>();
    if (through_ub) {
      mm.template GetBatchTensorC<false>(local, batch_a, batch_b);
    } else {
      const GlobalTensor<float> made = mm.template GetBatchTensorC<false>(batch_a, batch_b);
      DataCopy(local, made, elements);
    }
    queue.EnQue(local);
    queue.DeQue<float>();
    DataCopy(global<float>(c)[i * elements], local, elements);
    queue.FreeTensor(local);
  }
  mm.End();
}

extern "C" __global__ __aicore__ void many_batches(GM_ADDR a, GM_ADDR b, GM_ADDR workspace, GM_ADDR c,
                                                   TCubeTiling tiling, uint32_t loops, uint32_t fetched,
                                                   uint32_t batch_a, uint32_t batch_b, bool heads, bool through_ub) {
  if (heads) {
    multiply_many_batches<LayoutMode::BSNGD, LayoutMode::BNGS1S2>(a, b, workspace, c, tiling, loops, fetched, batch_a,
                                                                  batch_b, through_ub);
  } else {
    multiply_many_batches<LayoutMode::NORMAL, LayoutMode::NORMAL>(a, b, workspace, c, tiling, loops, fetched, batch_a,
                                                                  batch_b, through_ub);
  }
}

// What an author does wrong, by number.
extern "C" __global__ __aicore__ void wrong(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling tiling, uint32_t which) {
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::VECIN, CubeFormat::ND, float>>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm);
  if (GetBlockIdx() != 0) return;
  GlobalTensor<half> of_a = global<half>(a), of_b = global<half>(b);
  GlobalTensor<float> of_c = global<float>(c);
  if (which == 0) mm.IterateAll(of_c);
  mm.Init(&tiling);
  if (which == 1) mm.IterateAll(of_c);
  mm.SetTensorA(of_a, which == 2);
  if (which == 3) mm.Iterate();
  mm.SetTensorB(of_b);
  if (which == 4) mm.SetBias(of_c);
  if (which == 5) mm.SetTail(-1, -1, 1000);
  if (which == 6) mm.GetTensorC(of_c);
  if (which == 7) mm.SetTail(1000);
  if (which == 8) mm.IterateAll(of_c, 7);
  if (which == 9) mm.SetOrgShape(64, 40, 32);
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 64 * 1024);
  LocalTensor<float> local = buffer.Get<float>();
  if (which == 10) mm.SetTail(-1, 3);
  if (which == 10 || which == 11) {
    mm.Iterate();
    mm.GetTensorC(local, which == 11, true);
  }
  if (which == 12) {  // not waited for
    mm.Iterate<false>();
    mm.GetTensorC<false>(local);
    Adds(local, local, 1.0f, 64);
  }
  if (which == 13) {  // A is still being written
    Duplicate(local, 1.0f, 1024);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(of_a, local.ReinterpretCast<half>(), 1024);
  }
  if (which == 14) {
    mm.IterateAll<false>(of_c, 0, false, true);
    DataCopy(local, of_c, 64);
  }
  if (which == 16) mm.SetHF32(true);
  if (which == 15) {
    mm.Iterate<false>();
    for (int i = 0; i < 100; ++i) {
      mm.GetTensorC<false>(local);
      mm.WaitGetTensorC();
    }
  }
  mm.IterateAll(of_c);
  mm.End();
}

// Each core adds the product of its part of K to all of C; one of them reads C without waiting for the others.
extern "C" __global__ __aicore__ void parts_of_k(GM_ADDR a, GM_ADDR b, GM_ADDR c, TCubeTiling t, bool reads) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>>
      mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  const int64_t part = t.Ka / (2 * GetBlockNum());
  mm.SetSingleShape(t.M, t.N, static_cast<int>(part));
  mm.SetTensorA(global<half>(a)[GetBlockIdx() * part]);
  mm.SetTensorB(global<half>(b)[GetBlockIdx() * part * t.N]);
  mm.IterateAll(global<float>(c), 1);
  if (reads && GetBlockIdx() == 0) ASSERT(global<float>(c).GetValue(0) == global<float>(c).GetValue(0));
  mm.End();
}
