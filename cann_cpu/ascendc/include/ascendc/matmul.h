// SPDX-License-Identifier: Apache-2.0
// The Matmul library: an object that multiplies the part of a matrix that a core has, block by block.
//
// On a device the vector cores of a mixed kernel send what they ask of an object to their cube core, which does nothing
// else. Here the object of the calling core computes, and the cube core leaves the kernel where objects are registered.
// For the checks, matrices in device memory are read by pipe MTE2, matrices in the unified buffer by MTE3, and matrices
// in L1 by MTE1. C is written to device memory by FIX, and to the unified buffer by MTE2. A call that waits for its
// result is ordered before everything after it. A call that does not wait is in order after its Wait function.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "ascendc/atomic.h"
#include "ascendc/cores.h"
#include "ascendc/fixpipe.h"
#include "ascendc/gemm.h"
#include "ascendc/matmul_config.h"
#include "ascendc/queue.h"

namespace AscendC {
namespace cpu {

// What comes later on these pipes knows what came before on the one, as flags that are waited for make it, and so does
// the one itself.
inline void order(Where where, pipe_t from, std::initializer_list<pipe_t> to) {
  if (checker() == nullptr) return;
  if (from != PIPE_S) cpu::pipe_barrier(from, where);
  for (const pipe_t pipe : to) {
    const uint8_t flag = event(from, pipe);
    const TEventID id = fetch_event_id(flag, where);
    set_flag(flag, id, where);
    wait_flag(flag, id, where);
  }
}

// How the elements of a stored matrix lie: rows `row` elements apart, or, in NZ, columns of fractals of `channel`
// columns, each of `row` rows.
struct Storage {
  bool is_nz;
  int64_t row;
  int64_t channel;

  int64_t at(int64_t i, int64_t j) const {
    return is_nz ? j / channel * row * channel + i * channel + j % channel : i * row + j;
  }
  // Calls see(first element, number) for the runs of a part of the matrix, from (i, j) on.
  template <class See>
  void for_each_run(int64_t i, int64_t j, int64_t rows, int64_t columns, const See& see) const {
    if (is_nz) {
      for (int64_t c = j; c < j + columns;) {
        const int64_t next = std::min(j + columns, (c / channel + 1) * channel);
        const bool whole = next - c == channel;
        for (int64_t r = i; r < (whole ? i + 1 : i + rows); ++r) see(at(r, c), whole ? rows * channel : next - c);
        c = next;
      }
    } else if (row == columns) {
      see(at(i, j), rows * columns);
    } else {
      for (int64_t r = i; r < i + rows; ++r) see(at(r, j), columns);
    }
  }
};

// While it lives, this core does what the block's cube core does on a device: functions of the author that the library
// calls there.
class OnCubeCore {
 public:
  explicit OnCubeCore(Where where) : block_(block(where)), core_(block_.core) {
    block_.core = {core_.block, core_.block, true, 0, 1};
  }
  ~OnCubeCore() { block_.core = core_; }
  OnCubeCore(const OnCubeCore&) = delete;
  OnCubeCore& operator=(const OnCubeCore&) = delete;

 private:
  Block& block_;
  const Core core_;
};

constexpr int64_t fractals(int64_t extent) { return (extent + 15) / 16 * 16; }

// A matrix that the author has set: in device memory, in a core's memory, or one number.
template <class T>
struct MatrixArgument {
  enum class Kind : uint8_t { None, Global, Local, Scalar };

  Kind kind = Kind::None;
  bool transposed = false;
  GlobalMemory global = {};
  LocalMemory local = {};
  T scalar{};

  const T* data() const {
    return kind == Kind::Scalar ? &scalar : reinterpret_cast<const T*>(kind == Kind::Global ? global.data : local.data);
  }
  bool is_set() const { return kind != Kind::None; }
  static MatrixArgument of(const GlobalTensor<T>& tensor, bool transposed = false) {
    return {Kind::Global, transposed, tensor.memory(), {}, {}};
  }
  static MatrixArgument of(const LocalTensor<T>& tensor, bool transposed = false) {
    return {Kind::Local, transposed, {}, tensor.memory(), {}};
  }
  static MatrixArgument of(T number) { return {Kind::Scalar, false, {}, {}, number}; }

  void check(const char* name, Where where, Use use, int64_t first, int64_t count, pipe_t of_global, pipe_t of_local,
             bool atomic = false) const {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    if (kind == Kind::Global) check_global(name, where, of_global, use, global, first * kBytes, count * kBytes, atomic);
    if (kind == Kind::Local) check_local(name, where, of_local, use, local, first * kBytes, count * kBytes);
  }
};

constexpr const MatmulConfig& config_of(const MatmulConfig& config) { return config; }
constexpr const MatmulConfig& config_of(const MatmulApiStaticTiling& tiling) { return tiling.cfg; }

}  // namespace cpu

template <class A_TYPE, class B_TYPE, class C_TYPE, class BIAS_TYPE = C_TYPE, const auto& MM_CFG = CFG_NORM,
          class MM_CB = MatmulCallBackFunc<nullptr, nullptr, nullptr>,
          template <const auto& = MM_CFG, class...> class MATMUL_POLICY = Impl::Detail::MatmulPolicy>
class Matmul {
  using A = typename A_TYPE::T;
  using B = typename B_TYPE::T;
  using C = typename C_TYPE::T;
  using Bias = typename BIAS_TYPE::T;
  static constexpr bool kIsInt8 = std::is_same_v<A, int8_t>;
  using Sum = std::conditional_t<kIsInt8, int32_t, float>;
  // Results that are scaled: integers that become half, and all that become int8.
  static constexpr bool kIsScaled = std::is_same_v<C, int8_t> || (kIsInt8 && !std::is_same_v<C, int32_t>);
  static constexpr MatmulConfig kConfig = cpu::config_of(MM_CFG);
  static constexpr bool kIsStatic = std::is_same_v<std::remove_cvref_t<decltype(MM_CFG)>, MatmulApiStaticTiling>;
  // The vector cores of a block share A and B: the cube core multiplies once for all of them.
  static constexpr bool kIsShared = A_TYPE::ibShare && B_TYPE::ibShare;
  static constexpr bool kHasCopyA = MM_CB::kCopyA != nullptr, kHasCopyB = MM_CB::kCopyB != nullptr;

  static_assert(std::is_same_v<A, B> && cpu::OneOf<A, half, bfloat16_t, float, int8_t>,
                "Matmul: A and B of one dtype, half, bfloat16_t, float or int8_t, are supported on the CPU");
  static_assert(kIsInt8 ? cpu::OneOf<C, int32_t, half, int8_t>
                        : (cpu::OneOf<C, float, half, bfloat16_t> ||
                           (std::is_same_v<C, int8_t> && !std::is_same_v<A, float>)),
                "Matmul: C of this dtype does not fit A and B; see the table of dtypes in CANN's documentation");
  static_assert(cpu::OneOf<Bias, half, float, int32_t> || std::is_same_v<Bias, C>,
                "Matmul: bias is half or float, or int32_t for matrices of int8_t");
  static_assert(A_TYPE::format == CubeFormat::ND || A_TYPE::format == CubeFormat::NZ ||
                    A_TYPE::format == CubeFormat::VECTOR,
                "Matmul: A is ND, NZ or VECTOR");
  static_assert(B_TYPE::format == CubeFormat::ND || B_TYPE::format == CubeFormat::NZ, "Matmul: B is ND or NZ");
  static_assert(C_TYPE::format == CubeFormat::ND || C_TYPE::format == CubeFormat::NZ ||
                    C_TYPE::format == CubeFormat::ND_ALIGN,
                "Matmul: C is ND, NZ or ND_ALIGN");
  static_assert(C_TYPE::pos == TPosition::GM || C_TYPE::pos == TPosition::VECIN || C_TYPE::pos == TPosition::CO1,
                "Matmul: C is in GM, VECIN or CO1");
  static_assert(C_TYPE::pos != TPosition::CO1 || (C_TYPE::format == CubeFormat::NZ && std::is_same_v<C, Sum>),
                "Matmul: C in CO1 is of CubeFormat::NZ, and float, or int32_t of int8_t");
  static_assert(kConfig.scheduleType != ScheduleType::OUTER_PRODUCT && !kConfig.isPartialOutput &&
                    !kConfig.enableRelu && !kConfig.intraBlockPartSum && !kConfig.isEnableChannelSplit &&
                    !kConfig.enableMixDualMaster,
                "Matmul: OUTER_PRODUCT, isPartialOutput, enableRelu, intraBlockPartSum, isEnableChannelSplit and "
                "enableMixDualMaster are not supported on the CPU");
  static_assert(MM_CB::kCopyOut == nullptr, "Matmul: DataCopyOut of MatmulCallBackFunc is not supported on the CPU");
  static_assert((!kHasCopyA && !kHasCopyB) || kConfig.doNorm,
                "Matmul: CopyA1 and CopyB1 of MatmulCallBackFunc are served with CFG_NORM and GetNormalConfig");
  static_assert((!kHasCopyA || A_TYPE::pos == TPosition::GM) && (!kHasCopyB || B_TYPE::pos == TPosition::GM),
                "Matmul: CopyA1 and CopyB1 of MatmulCallBackFunc copy matrices in TPosition::GM");

 public:
  using Where = cpu::Where;

  Matmul() = default;

  void Init(const TCubeTiling* __restrict tiling, TPipe* /*pipe*/ = nullptr, Where where = Where::current()) {
    TCubeTiling made = tiling != nullptr ? *tiling : TCubeTiling{};
    if constexpr (kIsStatic) fill_in(made, tiling == nullptr);
    fix("baseM", made.baseM, kConfig.basicM, where), fix("baseN", made.baseN, kConfig.basicN, where);
    if (made.baseM <= 0 || made.baseN <= 0 || made.singleCoreM <= 0 || made.singleCoreN <= 0 || made.singleCoreK <= 0) {
      cpu::fail(where,
                "Matmul: a tiling of singleCoreM %d, singleCoreN %d, singleCoreK %d, baseM %d, baseN %d; all are "
                "positive where GetTiling has made it",
                made.singleCoreM, made.singleCoreN, made.singleCoreK, made.baseM, made.baseN);
    }
    tiling_ = made;
    is_static_ = tiling == nullptr;
    has_tiling_ = true;
    SetOrgShape(made.M, made.N, made.Ka, made.Kb);
    m_ = made.singleCoreM, n_ = made.singleCoreN, k_ = made.singleCoreK;
    begin_anew();
  }

  void SetOrgShape(int m, int n, int k) { SetOrgShape(m, n, k, k); }
  void SetOrgShape(int m, int n, int ka, int kb, int kc = 0) {
    org_m_ = m, org_n_ = n, org_ka_ = ka, org_kb_ = kb;
    org_c_ = kc != 0 ? kc : n;
  }
  void SetSingleShape(int m, int n, int k, Where where = Where::current()) { SetTail(m, n, k, where); }
  void SetTail(int m = -1, int n = -1, int k = -1, Where where = Where::current()) {
    if (m == 0 || n == 0 || k == 0) {
      cpu::fail(where, "Matmul: singleCoreM %d, singleCoreN %d, singleCoreK %d; each is positive, or -1 to stay", m, n,
                k);
    }
    if (m > 0) m_ = m;
    if (n > 0) n_ = n;
    if (k > 0) k_ = k;
    begin_anew();
  }

  void SetTensorA(const GlobalTensor<A>& gm, bool isTransposeA = false, Where where = Where::current()) {
    check_position<A_TYPE>("SetTensorA", where, TPosition::GM);
    set("SetTensorA", "A", where, a_, cpu::MatrixArgument<A>::of(gm, isTransposeA), A_TYPE::isTrans);
  }
  void SetTensorA(const LocalTensor<A>& leftMatrix, bool isTransposeA = false, Where where = Where::current()) {
    check_local_position<A_TYPE>("SetTensorA", where);
    set("SetTensorA", "A", where, a_, cpu::MatrixArgument<A>::of(leftMatrix, isTransposeA), A_TYPE::isTrans);
  }
  void SetTensorA(A aScalar, Where where = Where::current()) {
    set("SetTensorA", "A", where, a_, cpu::MatrixArgument<A>::of(aScalar), true);
  }
  void SetTensorB(const GlobalTensor<B>& gm, bool isTransposeB = false, Where where = Where::current()) {
    check_position<B_TYPE>("SetTensorB", where, TPosition::GM);
    set("SetTensorB", "B", where, b_, cpu::MatrixArgument<B>::of(gm, isTransposeB), B_TYPE::isTrans);
  }
  void SetTensorB(const LocalTensor<B>& rightMatrix, bool isTransposeB = false, Where where = Where::current()) {
    check_local_position<B_TYPE>("SetTensorB", where);
    set("SetTensorB", "B", where, b_, cpu::MatrixArgument<B>::of(rightMatrix, isTransposeB), B_TYPE::isTrans);
  }
  void SetTensorB(B bScalar, Where where = Where::current()) {
    set("SetTensorB", "B", where, b_, cpu::MatrixArgument<B>::of(bScalar), true);
  }

  void SetBias(const GlobalTensor<Bias>& biasGlobal, Where where = Where::current()) {
    set_bias(cpu::MatrixArgument<Bias>::of(biasGlobal), where);
  }
  void SetBias(const LocalTensor<Bias>& inputBias, Where where = Where::current()) {
    set_bias(cpu::MatrixArgument<Bias>::of(inputBias), where);
  }
  void DisableBias() { bias_ = {}; }
  void ClearBias() { DisableBias(); }

  // transMode 0: of two numbers that are equally near the even one is taken, 1: the larger.
  void SetHF32(bool enableHF32 = false, int32_t transMode = 0, Where where = Where::current()) {
    need_cube_core("SetHF32", where);
    if (transMode != 0 && transMode != 1) {
      cpu::fail(where, "SetHF32: transMode is %d; it is 0 (to even) or 1 (away from 0)", transMode);
    }
    rounding_ = !enableHF32 ? cpu::Hf32::Off : transMode == 0 ? cpu::Hf32::ToEven : cpu::Hf32::AwayFromZero;
  }
  void SetQuantScalar(uint64_t quantScalar) {
    static_assert(kIsScaled, "SetQuantScalar: C of this dtype is not scaled");
    scale_ = quantScalar;
    scales_ = {};
  }
  void SetQuantVector(const GlobalTensor<uint64_t>& quantTensor) {
    static_assert(kIsScaled, "SetQuantVector: C of this dtype is not scaled");
    scales_ = cpu::MatrixArgument<uint64_t>::of(quantTensor);
    scale_.reset();
  }
  void SetQuantVector(const LocalTensor<uint64_t>& quantTensor) {
    static_assert(kIsScaled, "SetQuantVector: C of this dtype is not scaled");
    scales_ = cpu::MatrixArgument<uint64_t>::of(quantTensor);
    scale_.reset();
  }

  // What the author's CopyA1 and CopyB1 are called with.
  void SetUserDefInfo(uint64_t tilingPtr) { for_callbacks_[0] = tilingPtr; }
  void SetSelfDefineData(uint64_t dataPtr) { for_callbacks_[1] = dataPtr; }

  // Room for results that are fetched later.
  template <class T>
  void SetWorkspace(const GlobalTensor<T>& addr) {
    workspace_ = cpu::MatrixArgument<C>{cpu::MatrixArgument<C>::Kind::Global, false, addr.memory(), {}, {}};
    workspace_.global.itemsize = sizeof(C);
  }
  template <class T>
  void SetWorkspace(const __gm__ T* addr, int size) {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(const_cast<T*>(addr), static_cast<uint64_t>(size));
    SetWorkspace(tensor);
  }
  void SetLocalWorkspace(const LocalTensor<uint8_t>&) {}  // these chips convert formats without the unified buffer

  void SetSubBlockIdx(uint8_t subBlockIdx) { sub_block_ = subBlockIdx; }
  uint8_t GetSubBlockIdx() const { return sub_block_; }

  // Computes the next block of baseM x baseN, by columns of blocks or by rows, as the tiling specifies. Returns false
  // after the last. Without `sync` all are computed, and GetTensorC<false> fetches them one by one. enPartialSum: adds
  // to the existing sums.
  template <bool sync = true>
  bool Iterate(bool enPartialSum = false, Where where = Where::current()) {
    if (next_ == 0) begin("Iterate", where);
    if (enPartialSum && blocks() != 1) {
      cpu::fail(where, "Iterate: enPartialSum with a core's %d x %d in blocks of %d x %d; it needs them to be equal",
                m_, n_, tiling_.baseM, tiling_.baseN);
    }
    if constexpr (!sync) {
      is_partial_ = enPartialSum;
      fetched_ = 0;
      return true;
    }
    if (next_ == blocks()) {
      next_ = 0;
      has_block_ = false;
      return false;
    }
    compute(where, next_++, enPartialSum);
    return true;
  }

  // The same, into memory of L0C that the author has, from where Fixpipe takes it.
  template <bool sync = true, class T>
  bool Iterate(bool enPartialSum, const LocalTensor<T>& localCmatrix, Where where = Where::current()) {
    static_assert(C_TYPE::pos == TPosition::CO1,
                  "Iterate: a tensor for C, and its MatmulType does not say TPosition::CO1");
    static_assert(sync && std::is_same_v<T, Sum>, "Iterate: C in CO1 is float, or int32_t of int8_t, and waited for");
    need_cube_core("Iterate", where);
    const cpu::LocalMemory& memory = localCmatrix.memory();
    if (cpu::hardware_of(memory) != Hardware::L0C) {
      cpu::fail(where, "Iterate: localCmatrix is not a tensor of TPosition::CO1");
    }
    const int32_t number = next_;
    if (enPartialSum && number < blocks()) from_co1(where, memory, number);
    if (!Iterate<true>(enPartialSum, where)) return false;
    to_co1(where, memory);
    cpu::order(where, PIPE_M, {});
    return true;
  }

  template <bool sync = true>
  void GetTensorC(const LocalTensor<C>& co2Local, uint8_t enAtomic = 0, bool enSequentialWrite = false,
                  Where where = Where::current()) {
    fetch<sync>("GetTensorC", where);
    to_local("GetTensorC", where, co2Local, enAtomic, enSequentialWrite || !sync, sync);
  }
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<C>& gm, uint8_t enAtomic = 0, bool enSequentialWrite = false,
                  Where where = Where::current()) {
    fetch<sync>("GetTensorC", where);
    to_global("GetTensorC", where, cpu::MatrixArgument<C>::of(gm), enAtomic, enSequentialWrite);
    if (sync) written(where);
  }
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<C>& gm, const LocalTensor<C>& co2Local, uint8_t enAtomic = 0,
                  bool enSequentialWrite = false, Where where = Where::current()) {
    fetch<sync>("GetTensorC", where);
    to_global("GetTensorC", where, cpu::MatrixArgument<C>::of(gm), enAtomic, enSequentialWrite);
    to_local("GetTensorC", where, co2Local, 0, enSequentialWrite || !sync, sync);
    if (sync) written(where);
  }
  // The block in the workspace, of baseM x baseN elements.
  template <bool sync = true>
  GlobalTensor<C> GetTensorC(uint8_t enAtomic = 0, bool /*enSequentialWrite*/ = false, Where where = Where::current()) {
    static_assert(!sync, "GetTensorC: the block in the workspace comes after Iterate<false>");
    const int64_t first = int64_t{fetched_} * tiling_.baseM * tiling_.baseN;
    fetch<sync>("GetTensorC", where);
    if (!workspace_.is_set()) cpu::fail(where, "GetTensorC: the object has no workspace; call SetWorkspace");
    cpu::MatrixArgument<C> part = workspace_;
    part.global.data += first * static_cast<int64_t>(sizeof(C));
    if (part.global.bytes != INT64_MAX) part.global.bytes -= first * static_cast<int64_t>(sizeof(C));
    to_global("GetTensorC", where, part, enAtomic, true);
    written(where);
    GlobalTensor<C> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<C*>(part.global.data), static_cast<uint64_t>(size_m()) * size_n());
    return tensor;
  }
  void AsyncGetTensorC(const LocalTensor<C>& c, Where where = Where::current()) {
    GetTensorC<false>(c, 0, true, where);
  }
  void WaitGetTensorC(Where where = Where::current()) { cpu::order(where, PIPE_MTE2, {PIPE_V, PIPE_S, PIPE_MTE3}); }

  template <bool sync = true>
  void IterateAll(const GlobalTensor<C>& gm, uint8_t enAtomic = 0, bool enSequentialWrite = false,
                  bool /*waitIterateAll*/ = false, bool fakeMsg = false, Where where = Where::current()) {
    if (fakeMsg) return;
    begin("IterateAll", where);
    const cpu::MatrixArgument<C> c = cpu::MatrixArgument<C>::of(gm);
    for (int32_t i = 0; i < blocks() && !is_computed_by_another(); ++i) {
      compute(where, i, false);
      cpu::MatrixArgument<C> part = c;
      if (enSequentialWrite) {
        part.global.data += int64_t{i} * tiling_.baseM * tiling_.baseN * static_cast<int64_t>(sizeof(C));
      }
      to_global("IterateAll", where, part, enAtomic, enSequentialWrite);
    }
    begin_anew();
    if (sync) written(where);
  }
  template <bool sync = true>
  void IterateAll(const LocalTensor<C>& ubCmatrix, uint8_t enAtomic = 0, Where where = Where::current()) {
    begin("IterateAll", where);
    for (int32_t i = 0; i < blocks(); ++i) {
      compute(where, i, false);
      to_local("IterateAll", where, ubCmatrix, enAtomic, false, sync);
    }
    begin_anew();
  }
  void WaitIterateAll(Where where = Where::current()) { written(where); }

#ifdef ASCENDC_CUBE_ONLY
  void SetBatchNum(int32_t batchA, int32_t batchB) { batch_a_ = batchA, batch_b_ = batchB; }
  void IterateBatch(const GlobalTensor<C>& gm, bool enPartialSum, uint8_t enAtomic, bool enSequentialWrite,
                    uint32_t matrixStrideA = 0, uint32_t matrixStrideB = 0, uint32_t matrixStrideC = 0,
                    Where where = Where::current()) {
    iterate_batch("IterateBatch", where, 0, cpu::MatrixArgument<C>::of(gm), batch_a_, batch_b_, enSequentialWrite,
                  matrixStrideA, matrixStrideB, matrixStrideC, enPartialSum, enAtomic);
    written(where);
  }
#else
  // As many products as the larger number of batches; of the other matrix each batch is used for equally many.
  template <bool sync = true, bool waitIterateBatch = false>
  void IterateBatch(const GlobalTensor<C>& gm, uint32_t batchA, uint32_t batchB, bool enSequentialWrite,
                    uint32_t matrixStrideA = 0, uint32_t matrixStrideB = 0, uint32_t matrixStrideC = 0,
                    bool enPartialSum = false, uint8_t enAtomic = 0, Where where = Where::current()) {
    iterate_batch("IterateBatch", where, 0, cpu::MatrixArgument<C>::of(gm), batchA, batchB, enSequentialWrite,
                  matrixStrideA, matrixStrideB, matrixStrideC, enPartialSum, enAtomic);
    if (sync) written(where);
  }
  template <bool sync = true>
  void IterateBatch(const LocalTensor<C>& ubCmatrix, uint32_t batchA, uint32_t batchB, bool enSequentialWrite,
                    uint32_t matrixStrideA = 0, uint32_t matrixStrideB = 0, uint32_t matrixStrideC = 0,
                    bool enPartialSum = false, uint8_t enAtomic = 0, Where where = Where::current()) {
    static_assert(sync, "IterateBatch: results in the unified buffer are waited for");
    iterate_batch("IterateBatch", where, 0, cpu::MatrixArgument<C>::of(ubCmatrix), batchA, batchB, enSequentialWrite,
                  matrixStrideA, matrixStrideB, matrixStrideC, enPartialSum, enAtomic);
  }
#endif
  // Runs IterateBatch batchLoop times, each on the next batches. C goes to the workspace as consecutive matrices.
  template <bool sync = true, bool waitIterateBatch = false>
  void IterateNBatch(uint32_t batchLoop, uint32_t batchA, uint32_t batchB, bool enSequentialWrite,
                     uint32_t matrixStrideA = 0, uint32_t matrixStrideB = 0, uint32_t matrixStrideC = 0,
                     Where where = Where::current()) {
    static_assert(kConfig.isNBatch, "IterateNBatch: isNBatch of the MatmulConfig is false");
    static_assert((C_TYPE::layout == LayoutMode::NORMAL || C_TYPE::layout == LayoutMode::BNGS1S2) &&
                      C_TYPE::format == CubeFormat::ND,
                  "IterateNBatch: C in the workspace is ND, of LayoutMode::NORMAL or BNGS1S2");
    if (!workspace_.is_set()) cpu::fail(where, "IterateNBatch: the object has no workspace; call SetWorkspace");
    for (uint32_t loop = 0; loop < batchLoop; ++loop) {
      iterate_batch("IterateNBatch", where, loop, workspace_, batchA, batchB, enSequentialWrite, matrixStrideA,
                    matrixStrideB, matrixStrideC, false, 0);
    }
    fetched_batches_ = 0;
    batch_loops_ = batchLoop;
    if (sync) written(where);
  }
  // The workspace's address of the result that the next of these loops has computed.
  template <bool sync = false>
  GlobalTensor<C> GetBatchTensorC(uint32_t batchA, uint32_t batchB, bool enSequentialWrite = false,
                                  Where where = Where::current()) {
    return next_batches<sync>("GetBatchTensorC", where, batchA, batchB, enSequentialWrite);
  }
  // In the unified buffer.
  template <bool sync = false>
  void GetBatchTensorC(const LocalTensor<C>& c, uint32_t batchA, uint32_t batchB, bool enSequentialWrite = false,
                       Where where = Where::current()) {
    const GlobalTensor<C> batches = next_batches<sync>("GetBatchTensorC", where, batchA, batchB, enSequentialWrite);
    copy_batches("GetBatchTensorC", where, c, batches);
  }
  template <bool sync = true>
  GlobalTensor<C> GetBatchC(uint32_t batchA, uint32_t batchB, bool enSequentialWrite = false,
                            Where where = Where::current()) {
    return next_batches<false>("GetBatchC", where, batchA, batchB, enSequentialWrite);
  }
  template <bool sync = true>
  void GetBatchC(const LocalTensor<C>& c, uint32_t batchA, uint32_t batchB, bool enSequentialWrite = false,
                 Where where = Where::current()) {
    copy_batches("GetBatchC", where, c, next_batches<false>("GetBatchC", where, batchA, batchB, enSequentialWrite));
  }
  void WaitIterateBatch(Where where = Where::current()) { written(where); }

  // Another object may compute.
  void End(Where where = Where::current()) {
    written(where);
    begin_anew();
  }

 private:
  static void fix(const char* name, int32_t& size, uint32_t constant, Where where) {
    if (constant == 0) return;
    if (size > 0 && size != static_cast<int32_t>(constant)) {
      cpu::fail(where, "Matmul: %s is %d in the tiling and %u in the object's MatmulConfig; they agree", name, size,
                constant);
    }
    size = static_cast<int32_t>(constant);
  }

  // Without a tiling, the constants of the kernel's compilation replace it.
  static void fill_in(TCubeTiling& tiling, bool all) {
    const auto set = [](int32_t& field, int32_t constant) {
      if (constant > 0) field = constant;
    };
    set(tiling.singleCoreM, MM_CFG.singleCoreM), set(tiling.singleCoreN, MM_CFG.singleCoreN);
    set(tiling.singleCoreK, MM_CFG.singleCoreK);
    if (!all) return;
    tiling.M = tiling.singleCoreM, tiling.N = tiling.singleCoreN;
    tiling.Ka = tiling.Kb = tiling.singleCoreK;
  }

  template <class Type>
  static void check_position(const char* name, Where where, TPosition position) {
    if (Type::pos != position) {
      cpu::fail(where, "%s: a GlobalTensor, and the MatmulType says TPosition %d; it is TPosition::GM", name,
                static_cast<int>(Type::pos));
    }
  }
  template <class Type>
  static void check_local_position(const char* name, Where where) {
    if (Type::pos != TPosition::VECOUT && Type::pos != TPosition::TSCM) {
      cpu::fail(where, "%s: a LocalTensor, and the MatmulType says TPosition %d; it is TPosition::VECOUT or TSCM", name,
                static_cast<int>(Type::pos));
    }
  }

  template <class T>
  void set(const char* name, const char* matrix, Where where, cpu::MatrixArgument<T>& to,
           const cpu::MatrixArgument<T>& argument, bool may_be_transposed) {
    if (argument.transposed && !may_be_transposed) {
      cpu::fail(where, "%s: %s is transposed, and its MatmulType has ISTRANS false", name, matrix);
    }
    to = argument;
    begin_anew();
  }

  void set_bias(const cpu::MatrixArgument<Bias>& bias, Where where) {
    if (has_tiling_ && !is_static_ && tiling_.isBias != 1) {
      cpu::fail(where, "SetBias: isBias is %d in the tiling; call EnableBias(true) where it is made", tiling_.isBias);
    }
    bias_ = bias;
  }

  void begin_anew() {
    next_ = fetched_ = 0;
    has_block_ = false;
    is_read_ = false;
  }

  bool is_computed_by_another() const { return kIsShared && sub_block_ != 0; }

  int32_t blocks_m() const { return (m_ + tiling_.baseM - 1) / tiling_.baseM; }
  int32_t blocks_n() const { return (n_ + tiling_.baseN - 1) / tiling_.baseN; }
  int32_t blocks() const { return blocks_m() * blocks_n(); }
  bool by_rows() const {
    return kConfig.iterateOrder != IterateOrder::UNDEF ? kConfig.iterateOrder == IterateOrder::ORDER_N
                                                       : tiling_.iterateOrder == 1;
  }
  // The sizes of the last computed block.
  int32_t size_m() const { return std::min(tiling_.baseM, m_ - first_m_); }
  int32_t size_n() const { return std::min(tiling_.baseN, n_ - first_n_); }

  // A as it lies; its rows and columns are M and K, or K and M if it is transposed.
  cpu::Storage storage_a() const {
    constexpr int64_t kChannel = 32 / sizeof(A);
    const bool is_local = a_.kind == cpu::MatrixArgument<A>::Kind::Local;
    const int64_t m = is_local ? m_ : org_m_, k = is_local ? k_ : org_ka_;
    if (A_TYPE::format == CubeFormat::NZ) return {true, cpu::fractals(a_.transposed ? k : m), kChannel};
    return {false, a_.transposed ? m : k, kChannel};
  }
  cpu::Storage storage_b() const {
    constexpr int64_t kChannel = 32 / sizeof(B);
    const bool is_local = b_.kind == cpu::MatrixArgument<B>::Kind::Local;
    const int64_t n = is_local ? n_ : org_n_, k = is_local ? k_ : org_kb_;
    if (B_TYPE::format == CubeFormat::NZ) return {true, cpu::fractals(b_.transposed ? n : k), kChannel};
    return {false, b_.transposed ? k : n, kChannel};
  }
  cpu::Storage storage_c(bool is_local, bool is_sequential) const {
    constexpr int64_t kChannel = std::is_same_v<C, int8_t> ? 32 : 16;
    if (C_TYPE::format == CubeFormat::NZ) {
      return {true, cpu::fractals(is_sequential ? size_m() : is_local ? m_ : org_m_), kChannel};
    }
    const int64_t columns = is_sequential ? size_n() : is_local ? n_ : org_c_;
    return {false, C_TYPE::format == CubeFormat::ND_ALIGN ? whole_rows(columns) : columns, kChannel};
  }
  static int64_t whole_rows(int64_t columns) {
    return cpu::whole_blocks(columns * static_cast<int64_t>(sizeof(C))) / static_cast<int64_t>(sizeof(C));
  }

  void begin(const char* name, Where where) {
    if (!has_tiling_) cpu::fail(where, "%s: the object has no tiling; call REGIST_MATMUL_OBJ with it, or Init", name);
    if (!a_.is_set()) cpu::fail(where, "%s: the object has no A; call SetTensorA first", name);
    if (!b_.is_set()) cpu::fail(where, "%s: the object has no B; call SetTensorB first", name);
    if (A_TYPE::format == CubeFormat::VECTOR && m_ != 1) {
      cpu::fail(where, "%s: A of CubeFormat::VECTOR has one row, and singleCoreM is %d", name, m_);
    }
    if (kIsScaled && !scale_ && !scales_.is_set()) {
      cpu::fail(where, "%s: results of this dtype are scaled; call SetQuantScalar or SetQuantVector first", name);
    }
    if (is_read_) return;
    is_read_ = true;
    if (cpu::checker() != nullptr) read(name, where);
  }

  // What the object may read from now on.
  void read(const char* name, Where where) const {
    cpu::order(where, PIPE_S, {PIPE_MTE2, PIPE_FIX});
    const auto all = [&](const auto& matrix, const cpu::Storage& storage, int64_t rows, int64_t columns, TPosition at) {
      const pipe_t local = at == TPosition::TSCM ? PIPE_MTE1 : PIPE_MTE3;
      storage.for_each_run(0, 0, rows, columns, [&](int64_t first, int64_t count) {
        matrix.check(name, where, cpu::Use::Read, first, count, PIPE_MTE2, local);
      });
    };
    if (!kHasCopyA) all(a_, storage_a(), a_.transposed ? k_ : m_, a_.transposed ? m_ : k_, A_TYPE::pos);
    if (!kHasCopyB) all(b_, storage_b(), b_.transposed ? n_ : k_, b_.transposed ? k_ : n_, B_TYPE::pos);
    all(bias_, {false, n_, 1}, 1, n_, BIAS_TYPE::pos);
    all(scales_, {false, n_, 1}, 1, n_, TPosition::TSCM);
    cpu::order(where, PIPE_MTE2, {PIPE_FIX});
  }

  // Rows and columns of a factor as they are multiplied: where its part from (i, j) on lies, gathered if it is NZ.
  template <class T>
  struct Factor {
    const T* data;
    int64_t row, column;
  };
  template <class T>
  static Factor<T> factor(const cpu::MatrixArgument<T>& matrix, const cpu::Storage& storage, int64_t i, int64_t j,
                          int64_t rows, int64_t columns, std::vector<T>& gathered) {
    const T* data = matrix.data();
    if (matrix.kind == cpu::MatrixArgument<T>::Kind::Scalar) return {data, 0, 0};
    const bool across = matrix.transposed;
    if (!storage.is_nz)
      return {data + (across ? storage.at(j, i) : storage.at(i, j)), across ? 1 : storage.row,
              across ? storage.row : 1};
    gathered.resize(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        gathered[r * columns + c] = data[across ? storage.at(j + c, i + r) : storage.at(i + r, j + c)];
      }
    }
    return {gathered.data(), columns, 1};
  }

  Factor<A> factor_a(Where where, int64_t m) {
    if constexpr (!kHasCopyA) {
      return factor(a_, storage_a(), first_m_, 0, m, k_, gathered_a_);
    } else {
      const int32_t row = first_m_ / tiling_.baseM;
      for (int32_t k = 0; k < k_; k += tiling_.baseK) {
        copy_by_author<MM_CB::kCopyA>(where, "CopyA1", a_, gathered_a_, {m, k_}, {0, k}, row, k / tiling_.baseK, m,
                                      std::min(tiling_.baseK, k_ - k));
      }
      return {gathered_a_.data(), k_, 1};
    }
  }
  Factor<B> factor_b(Where where, int64_t n) {
    if constexpr (!kHasCopyB) {
      return factor(b_, storage_b(), 0, first_n_, k_, n, gathered_b_);
    } else {
      const int32_t column = first_n_ / tiling_.baseN;
      for (int32_t k = 0; k < k_; k += tiling_.baseK) {
        copy_by_author<MM_CB::kCopyB>(where, "CopyB1", b_, gathered_b_, {k_, n}, {k, 0}, k / tiling_.baseK, column,
                                      std::min(tiling_.baseK, k_ - k), n);
      }
      return {gathered_b_.data(), n, 1};
    }
  }
  struct Extent {
    int64_t rows, columns;
  };
  // A block in L1, of fractals, where the author's function copies it; and from there to its place among those that are
  // multiplied.
  template <auto copy, class T>
  void copy_by_author(Where where, const char* name, const cpu::MatrixArgument<T>& matrix, std::vector<T>& gathered,
                      const Extent& whole, const Extent& at, int32_t row, int32_t column, int64_t rows,
                      int64_t columns) {
    if (matrix.kind != cpu::MatrixArgument<T>::Kind::Global || matrix.transposed) {
      cpu::fail(where, "Matmul: %s of a %s; it copies a GlobalTensor that is not transposed", name,
                matrix.transposed ? "transposed matrix" : "number");
    }
    constexpr int64_t kChannel = 32 / sizeof(T), kRowBytes = 32;
    const int64_t stripe = cpu::fractals(rows) * kRowBytes, bytes = (columns + kChannel - 1) / kChannel * stripe;
    gathered.resize(static_cast<size_t>(whole.rows * whole.columns));
    const cpu::OnCubeCore core(where);
    const auto address = static_cast<uint32_t>(std::max<int64_t>(cpu::kArchitecture.l1 - bytes, 0));
    const cpu::LocalMemory block = cpu::static_memory(where, Hardware::L1, address, bytes);
    cpu::order(where, PIPE_MTE1, {PIPE_MTE2});
    copy(LocalTensor<int8_t>(block), matrix.global.data, row, column, static_cast<int>(rows), static_cast<int>(columns),
         for_callbacks_[0], for_callbacks_[1]);
    cpu::order(where, PIPE_MTE2, {PIPE_MTE1, PIPE_FIX});
    for (int64_t j = 0; j < columns; j += kChannel) {
      const int64_t from = j / kChannel * stripe;
      if (cpu::checker() != nullptr) {
        cpu::check_local(name, where, PIPE_MTE1, cpu::Use::Read, block, from, rows * kRowBytes);
      }
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(reinterpret_cast<const T*>(block.data + from + i * kRowBytes), std::min(kChannel, columns - j),
                    gathered.data() + (at.rows + i) * whole.columns + at.columns + j);
      }
    }
  }

  static void need_cube_core(const char* name, Where where) {
    if (!cpu::multiplies(cpu::block(where))) {
      cpu::fail(where, "%s: an object of a vector core; define ASCENDC_CUBE_ONLY before lib/matmul_intf.h", name);
    }
  }

  // A block in L0C: stripes of 16 columns, each with the block's rows rounded up to whole fractals. visit(where a row
  // of a stripe lies, the sum that it begins with, of how many columns).
  template <class Visit>
  void for_each_row_in_co1(const char* name, Where where, cpu::Use use, const cpu::LocalMemory& memory,
                           const Visit& visit) const {
    constexpr int64_t kRowBytes = cpu::kStripe * static_cast<int64_t>(sizeof(Sum));
    for (int64_t j = 0; j < size_n(); j += cpu::kStripe) {
      const int64_t stripe = j / cpu::kStripe * cpu::fractals(size_m()) * kRowBytes;
      if (cpu::checker() != nullptr) {
        cpu::check_local(name, where, PIPE_M, use, memory, stripe, size_m() * kRowBytes);
      }
      for (int64_t i = 0; i < size_m(); ++i) {
        visit(reinterpret_cast<Sum*>(memory.data + stripe + i * kRowBytes), i * size_n() + j,
              std::min<int64_t>(cpu::kStripe, size_n() - j));
      }
    }
  }
  void from_co1(Where where, const cpu::LocalMemory& memory, int32_t number) {
    find_block(number);
    sums_.resize(static_cast<size_t>(size_m()) * size_n());
    for_each_row_in_co1("Iterate", where, cpu::Use::Read, memory, [&](const Sum* row, int64_t sum, int64_t count) {
      std::copy_n(row, count, sums_.data() + sum);
    });
  }
  void to_co1(Where where, const cpu::LocalMemory& memory) const {
    for_each_row_in_co1("Iterate", where, cpu::Use::Write, memory, [&](Sum* row, int64_t sum, int64_t count) {
      std::fill(std::copy_n(sums_.data() + sum, count, row), row + cpu::kStripe, Sum{});
    });
  }

  void find_block(int32_t number) {
    first_m_ = (by_rows() ? number / blocks_n() : number % blocks_m()) * tiling_.baseM;
    first_n_ = (by_rows() ? number % blocks_n() : number / blocks_m()) * tiling_.baseN;
  }

  void compute(Where where, int32_t number, bool onto_sums) {
    find_block(number);
    const int64_t m = size_m(), n = size_n();
    if (!onto_sums) sums_.assign(static_cast<size_t>(m * n), Sum{});
    const bool has_bias = bias_.is_set() && kConfig.enableSetBias;
    if (has_bias) {
      const Bias* bias = bias_.data() + first_n_;
      for (int64_t i = 0; i < m * n; ++i) sums_[i] += static_cast<Sum>(bias[i % n]);
    }
    const Factor<A> a = factor_a(where, m);
    const Factor<B> b = factor_b(where, n);
    cpu::gemm(sums_.data(), n, a.data, a.row, a.column, b.data, b.row, b.column, m, n, k_, has_bias || onto_sums,
              rounding_);
    has_block_ = true;
  }

  template <bool sync>
  void fetch(const char* name, Where where) {
    if constexpr (!sync) {
      if (fetched_ == blocks()) cpu::fail(where, "%s: all of the %d blocks were fetched", name, blocks());
      begin(name, where);
      compute(where, fetched_++, is_partial_);
    }
    if (!has_block_) cpu::fail(where, "%s: there is no block; call Iterate first", name);
  }

  // The sums as C has them, a row at a time.
  std::vector<C> results() const {
    const int64_t m = size_m(), n = size_n();
    std::vector<C> all(static_cast<size_t>(m * n));
    const uint64_t* scales = scales_.is_set() ? scales_.data() + first_n_ : nullptr;
    for (int64_t i = 0; i < m * n; ++i) {
      if constexpr (!kIsScaled) {
        all[i] = static_cast<C>(sums_[i]);
      } else {
        all[i] = cpu::Scale(scales != nullptr ? scales[i % n] : *scale_).template apply<C>(sums_[i]);
      }
    }
    return all;
  }

  static cpu::Atomic atomic_of(const char* name, Where where, uint8_t number) {
    cpu::Block& block = cpu::block(where);
    const cpu::Atomic before = block.atomic;
    if (number == 0) return cpu::multiplies(block) ? before : cpu::Atomic{};
    if constexpr (cpu::OneOf<C, half, bfloat16_t, float, int8_t, int32_t>) {
      switch (number) {
        case 1:
          SetAtomicAdd<C>(where);
          break;
        case 2:
          SetAtomicMax<C>(where);
          break;
        case 3:
          SetAtomicMin<C>(where);
          break;
        default:
          cpu::fail(where, "%s: enAtomic is %u; 0: none, 1: add, 2: largest, 3: smallest", name, number);
      }
    }
    return std::exchange(block.atomic, before);
  }

  // Writes the block to its place in C, or to its beginning.
  void to_global(const char* name, Where where, const cpu::MatrixArgument<C>& c, uint8_t enAtomic, bool is_sequential) {
    const cpu::Storage storage = storage_c(false, is_sequential);
    const cpu::Atomic atomic = atomic_of(name, where, enAtomic);
    write(name, where, c, storage, is_sequential, PIPE_FIX, atomic.kind != cpu::Atomic::Kind::None,
          [&](std::byte* to, const std::byte* from, int64_t bytes) {
            if (atomic.kind == cpu::Atomic::Kind::None) {
              std::memcpy(to, from, static_cast<size_t>(bytes));
            } else {
              cpu::combine_runs(atomic, to, {1, bytes, bytes}, from, {1, bytes, bytes});
            }
          });
  }

  void to_local(const char* name, Where where, const LocalTensor<C>& c, uint8_t enAtomic, bool is_sequential,
                bool sync) {
    if (C_TYPE::pos != TPosition::VECIN) {
      cpu::fail(where, "%s: a LocalTensor, and the MatmulType of C says TPosition %d; it is TPosition::VECIN", name,
                static_cast<int>(C_TYPE::pos));
    }
    if (enAtomic != 0) cpu::fail(where, "%s: enAtomic is %u, and C is in the unified buffer; it is 0", name, enAtomic);
    const cpu::Storage storage = storage_c(true, is_sequential);
    if (!storage.is_nz && size_m() > 1 && storage.row * sizeof(C) % cpu::kBlockBytes != 0) {
      cpu::fail(where,
                "%s: rows of %lld elements are not a multiple of 32 bytes in the unified buffer; C is of "
                "CubeFormat::ND_ALIGN then",
                name, static_cast<long long>(storage.row));
    }
    if (sync) cpu::order(where, PIPE_V, {PIPE_MTE2});
    write(
        name, where, cpu::MatrixArgument<C>::of(c), storage, is_sequential, PIPE_MTE2, false,
        [](std::byte* to, const std::byte* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); });
    if (sync) WaitGetTensorC(where);
  }

  template <class Copy>
  void write(const char* name, Where where, const cpu::MatrixArgument<C>& c, const cpu::Storage& storage,
             bool is_sequential, pipe_t pipe, bool atomic, const Copy& copy) {
    const int64_t m = size_m(), n = size_n(), i = is_sequential ? 0 : first_m_, j = is_sequential ? 0 : first_n_;
    // Rows that begin on blocks of 32 bytes are filled up with 0 after the last column.
    const int64_t padded =
        C_TYPE::format == CubeFormat::ND_ALIGN && j + n == (is_sequential ? n : n_) ? storage.row - j : n;
    const bool fills = C_TYPE::format == CubeFormat::ND_ALIGN && padded <= whole_rows(j + n) - j;
    const int64_t width = fills ? padded : n;
    if (cpu::checker() != nullptr) {
      storage.for_each_run(i, j, m, width, [&](int64_t first, int64_t count) {
        c.check(name, where, cpu::Use::Write, first, count, pipe, pipe, atomic);
      });
    }
    const std::vector<C> values = results();
    std::vector<C> row(static_cast<size_t>(width));
    auto* to = reinterpret_cast<std::byte*>(const_cast<C*>(c.data()));
    for (int64_t r = 0; r < m; ++r) {
      std::copy_n(values.data() + r * n, n, row.data());
      const int64_t step = storage.is_nz ? storage.channel : width;
      for (int64_t from = 0; from < width;) {
        const int64_t count = std::min(width - from, step - (storage.is_nz ? (j + from) % step : 0));
        copy(to + storage.at(i + r, j + from) * static_cast<int64_t>(sizeof(C)),
             reinterpret_cast<const std::byte*>(row.data() + from), count * static_cast<int64_t>(sizeof(C)));
        from += count;
      }
    }
  }

  // What was written to device memory is there for all that comes after.
  void written(Where where) { cpu::order(where, PIPE_FIX, {PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_MTE1}); }

  // How the batches of a matrix lie: from one to the next, from each `group` of them to the next, and from row to row.
  struct Batches {
    int64_t step, row, group = INT64_MAX, group_step = 0;

    int64_t at(int64_t batch) const { return batch / group * group_step + batch % group * step; }
  };
  static Batches batches(LayoutMode layout, int64_t rows, int64_t columns, const int32_t (&axes)[5]) {
    const int64_t b = axes[0], n = axes[2], g = axes[3], d = axes[4];
    switch (layout) {
      case LayoutMode::BSNGD:
        return {d, n * g * d, n * g, axes[1] * n * g * d};
      case LayoutMode::SBNGD:
        return {d, b * n * g * d};
      case LayoutMode::BNGS1S2:
        return {axes[1] * d, d};
      default:
        return {rows * columns, columns};
    }
  }

  // Computes the batches that follow the first `loop` groups.
  void iterate_batch(const char* name, Where where, uint32_t loop, const cpu::MatrixArgument<C>& c, uint32_t batch_a,
                     uint32_t batch_b, bool is_sequential, uint32_t stride_a, uint32_t stride_b, uint32_t stride_c,
                     bool onto_sums, uint8_t enAtomic) {
    static_assert(
        C_TYPE::format != CubeFormat::NZ && A_TYPE::format != CubeFormat::NZ && B_TYPE::format != CubeFormat::NZ,
        "IterateBatch: matrices of CubeFormat::NZ are not supported on the CPU");
    static_assert(!kIsScaled, "IterateBatch: it does not scale its results");
    static_assert(A_TYPE::layout != LayoutMode::NONE && A_TYPE::layout == B_TYPE::layout,
                  "IterateBatch: A and B have one LayoutMode, which is not NONE");
    const uint32_t most = std::max(batch_a, batch_b), least = std::min(batch_a, batch_b);
    if (least == 0 || most % least != 0) {
      cpu::fail(where, "%s: %u batches of A and %u of B; the one is a multiple of the other", name, batch_a, batch_b);
    }
    if (stride_c != 0 || onto_sums) {
      cpu::fail(where, "%s: matrixStrideC and enPartialSum are not supported on the CPU", name);
    }
    const TCubeTiling& t = tiling_;
    if (t.CLayoutInfoG == 1 && std::max(t.ALayoutInfoG, t.BLayoutInfoG) > 1) {
      cpu::fail(where, "%s: sums over G of C are not supported on the CPU", name);
    }
    const int32_t axes_a[] = {t.ALayoutInfoB, t.ALayoutInfoS, t.ALayoutInfoN, t.ALayoutInfoG, t.ALayoutInfoD};
    const int32_t axes_b[] = {t.BLayoutInfoB, t.BLayoutInfoS, t.BLayoutInfoN, t.BLayoutInfoG, t.BLayoutInfoD};
    const int32_t axes_c[] = {t.CLayoutInfoB, t.CLayoutInfoS1, t.CLayoutInfoN, t.CLayoutInfoG, t.CLayoutInfoS2};
    const bool across_a = a_.transposed, across_b = b_.transposed;
    const Batches in_a = batches(A_TYPE::layout, across_a ? k_ : m_, across_a ? m_ : k_, axes_a);
    const Batches in_b = batches(B_TYPE::layout, across_b ? n_ : k_, across_b ? k_ : n_, axes_b);
    Batches in_c = batches(C_TYPE::layout, m_, n_, axes_c);
    if (C_TYPE::format == CubeFormat::ND_ALIGN) in_c = {m_ * whole_rows(n_), whole_rows(n_)};
    const cpu::MatrixArgument<A> all_a = a_;
    const cpu::MatrixArgument<B> all_b = b_;
    const cpu::MatrixArgument<Bias> all_bias = bias_;
    const auto shifted = [](auto matrix, int64_t elements) {
      const int64_t bytes = elements * static_cast<int64_t>(sizeof(matrix.scalar));
      matrix.global.data += bytes, matrix.local.data += bytes;
      if (matrix.global.bytes != INT64_MAX) matrix.global.bytes -= bytes;
      matrix.local.bytes -= bytes;
      return matrix;
    };
    const auto org = std::array{org_m_, org_n_, org_ka_, org_kb_, org_c_};
    (across_a ? org_m_ : org_ka_) = static_cast<int32_t>(in_a.row);
    (across_b ? org_kb_ : org_n_) = static_cast<int32_t>(in_b.row);
    org_c_ = static_cast<int32_t>(in_c.row);
    for (uint32_t i = 0; i < most; ++i) {
      const int64_t of_a = int64_t{loop} * batch_a + i / (most / batch_a);
      const int64_t of_b = int64_t{loop} * batch_b + i / (most / batch_b);
      const int64_t of_c = int64_t{loop} * most + i;
      a_ = shifted(all_a, stride_a != 0 ? of_a * stride_a : in_a.at(of_a));
      b_ = shifted(all_b, stride_b != 0 ? of_b * stride_b : in_b.at(of_b));
      if (kConfig.isBiasBatch && bias_.is_set()) bias_ = shifted(all_bias, of_c * n_);
      begin_anew();
      begin(name, where);
      const cpu::MatrixArgument<C> part = shifted(c, in_c.at(of_c));
      for (int32_t number = 0; number < blocks(); ++number) {
        compute(where, number, false);
        if (c.kind == cpu::MatrixArgument<C>::Kind::Global) {
          to_global(name, where, part, enAtomic, is_sequential);
        } else {
          to_local(name, where, LocalTensor<C>(part.local), enAtomic, false, true);
        }
      }
    }
    a_ = all_a, b_ = all_b, bias_ = all_bias;
    org_m_ = org[0], org_n_ = org[1], org_ka_ = org[2], org_kb_ = org[3], org_c_ = org[4];
    begin_anew();
  }

  template <bool sync>
  GlobalTensor<C> next_batches(const char* name, Where where, uint32_t batch_a, uint32_t batch_b, bool is_sequential) {
    static_assert(!sync, "GetBatchTensorC: the batches in the workspace come after IterateNBatch; sync is false");
    if (is_sequential) cpu::fail(where, "%s: enSequentialWrite is reserved; it is false", name);
    if (fetched_batches_ == batch_loops_) {
      cpu::fail(where, "%s: the results of all %u loops of IterateNBatch were fetched", name, batch_loops_);
    }
    written(where);
    const int64_t elements = int64_t{std::max(batch_a, batch_b)} * m_ * n_;
    GlobalTensor<C> all;
    all.SetGlobalBuffer(reinterpret_cast<C*>(workspace_.global.data) + fetched_batches_++ * elements,
                        static_cast<uint64_t>(elements));
    return all;
  }
  void copy_batches(const char* name, Where where, const LocalTensor<C>& to, const GlobalTensor<C>& from) {
    const cpu::MatrixArgument<C> source = cpu::MatrixArgument<C>::of(from), dst = cpu::MatrixArgument<C>::of(to);
    const auto elements = static_cast<int64_t>(from.GetSize());
    if (whole_rows(n_) != n_) {
      cpu::fail(where, "%s: rows of %d elements are not a multiple of 32 bytes in the unified buffer", name, n_);
    }
    if (cpu::checker() != nullptr) {
      source.check(name, where, cpu::Use::Read, 0, elements, PIPE_MTE2, PIPE_MTE2);
      dst.check(name, where, cpu::Use::Write, 0, elements, PIPE_MTE2, PIPE_MTE2);
    }
    std::memcpy(dst.local.data, source.global.data, static_cast<size_t>(elements) * sizeof(C));
    WaitGetTensorC(where);
  }

  TCubeTiling tiling_;
  bool has_tiling_ = false, is_static_ = false;
  int32_t org_m_ = 0, org_n_ = 0, org_ka_ = 0, org_kb_ = 0, org_c_ = 0;
  int32_t m_ = 0, n_ = 0, k_ = 0;  // of the core
  int32_t batch_a_ = 1, batch_b_ = 1;
  uint32_t batch_loops_ = 0, fetched_batches_ = 0;  // of IterateNBatch
  uint8_t sub_block_ = 0;
  cpu::MatrixArgument<A> a_;
  cpu::MatrixArgument<B> b_;
  cpu::MatrixArgument<Bias> bias_;
  cpu::MatrixArgument<uint64_t> scales_;
  cpu::MatrixArgument<C> workspace_;
  std::optional<uint64_t> scale_;
  uint64_t for_callbacks_[2] = {};  // of SetUserDefInfo and SetSelfDefineData
  cpu::Hf32 rounding_ = cpu::Hf32::Off;

  int32_t next_ = 0, fetched_ = 0;
  bool is_read_ = false, has_block_ = false, is_partial_ = false;
  int32_t first_m_ = 0, first_n_ = 0;  // of the block that was computed last
  std::vector<Sum> sums_;              // of it, as L0C holds them
  std::vector<A> gathered_a_;
  std::vector<B> gathered_b_;
};

// The object by the name under which a cube core has it.
template <class A_TYPE, class B_TYPE, class C_TYPE, class BIAS_TYPE = C_TYPE, const auto& MM_CFG = CFG_NORM,
          class MM_CB = MatmulCallBackFunc<nullptr, nullptr, nullptr>,
          template <const auto& = MM_CFG, class...> class MATMUL_POLICY = Impl::Detail::MatmulPolicy>
using MatmulImpl = Matmul<A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE, MM_CFG, MM_CB, MATMUL_POLICY>;

namespace cpu {

// Whether the core's part in a mixed kernel ends where objects are registered: it would only serve the vector cores.
inline bool only_serves(Where where) {
  const Block& block = cpu::block(where);
  if (!block.type.known) is_mixed();
  return block.core.cube && cores_of(block.type.name).vectors != 0;
}

// With ASCENDC_CUBE_ONLY, objects belong to cube cores. A kernel that has queried its core also has other cores.
inline void check_cube_core(Where where) {
  const Block& block = cpu::block(where);
  if (!block.type.known && block.type.tried) is_mixed();
  if (!block.type.known) declare_type(where, KERNEL_TYPE_AIC_ONLY);
  if (!multiplies(block)) {
    fail(where, "REGIST_MATMUL_OBJ: a vector core, and ASCENDC_CUBE_ONLY is defined; call it under ASCEND_IS_AIC");
  }
}

inline void register_objects(Where, TPipe*) {}
template <class Object, class... Rest>
void register_objects(Where where, TPipe* pipe, Object& object, Rest&&... rest) {
  object.SetSubBlockIdx(static_cast<uint8_t>(block(where).core.sub));
  if constexpr (sizeof...(Rest) == 0) {
    return;
  } else {
    const auto next = [&](auto&& tiling, auto&&... others) {
      if constexpr (std::is_convertible_v<decltype(tiling), const TCubeTiling*>) {
        object.Init(tiling, pipe, where);
        register_objects(where, pipe, others...);
      } else {
        register_objects(where, pipe, tiling, others...);
      }
    };
    next(rest...);
  }
}

}  // namespace cpu
}  // namespace AscendC

// Registers objects. Each is followed by its tiling if it already has one.
#ifdef ASCENDC_CUBE_ONLY
#define REGIST_MATMUL_OBJ(pipe, workspace, ...)                                                 \
  (static_cast<void>(workspace), AscendC::cpu::check_cube_core(AscendC::cpu::Where::current()), \
   AscendC::cpu::register_objects(AscendC::cpu::Where::current(), pipe, __VA_ARGS__))
#else
#define REGIST_MATMUL_OBJ(pipe, workspace, ...)                                                        \
  if (static_cast<void>(workspace), AscendC::cpu::only_serves(AscendC::cpu::Where::current())) return; \
  AscendC::cpu::register_objects(AscendC::cpu::Where::current(), pipe, __VA_ARGS__)
#endif
