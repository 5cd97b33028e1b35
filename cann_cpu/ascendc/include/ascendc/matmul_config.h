// SPDX-License-Identifier: Apache-2.0
// The template arguments of a Matmul object: the types of its matrices, its configuration, constant tilings, callbacks.
#pragma once

#include <type_traits>

#include "ascendc/half.h"
#include "ascendc/tensor.h"
#include "kernel_tiling/cube_tiling.h"

#define __kfc_workspace__  // marks a kernel's parameter as its workspace; on a device the library uses a part of it

namespace AscendC {

inline constexpr int32_t DEFAULT_C0_SIZE = cpu::kBlockBytes;  // of a fractal's row

enum class CubeFormat : uint8_t { ND = 0, NZ, ZN, ZZ, NN, VECTOR, SCALAR, ND_ALIGN, COLUMN_MAJOR };
enum class LayoutMode : uint8_t { NONE = 0, BSNGD, SBNGD, BNGS1S2, NORMAL };
enum class BatchMode : uint8_t { NONE = 0, BATCH_LESS_THAN_L1, BATCH_LARGE_THAN_L1, SINGLE_LARGE_THAN_L1 };
enum class BatchOutMode : uint8_t { SINGLE_BATCH, MULTI_BATCH };
enum class IterateOrder : uint8_t { ORDER_M = 0, ORDER_N, UNDEF };
enum class ScheduleType : uint8_t { INNER_PRODUCT = 0, OUTER_PRODUCT, N_BUFFER_33 };
enum class IterateMode : uint8_t {
  ITERATE_MODE_NORMAL = 1,
  ITERATE_MODE_ALL = 2,
  ITERATE_MODE_BATCH = 4,
  ITERATE_MODE_N_BATCH = 8,
  ITERATE_MODE_DEFAULT = 15
};

// A matrix's position, format and type, and whether SetTensorA and SetTensorB may declare it transposed.
template <TPosition POSITION, CubeFormat FORMAT, class TYPE, bool ISTRANS = false, LayoutMode LAYOUT = LayoutMode::NONE,
          bool IBSHARE = false, TPosition SRCPOS = TPosition::GM>
struct MatmulType {
  using T = TYPE;
  static constexpr TPosition pos = POSITION;
  static constexpr CubeFormat format = FORMAT;
  static constexpr bool isTrans = ISTRANS;
  static constexpr LayoutMode layout = LAYOUT;
  static constexpr bool ibShare = IBSHARE;
  static constexpr TPosition srcPos = SRCPOS;
};

// In the order in which authors fill it in by braces. Most members are about the device's speed alone.
struct MatmulConfig {
  bool doNorm = false;
  bool doBasicBlock = false;
  bool doMultiDataLoad = false;
  uint32_t basicM = 0;
  uint32_t basicN = 0;
  uint32_t basicK = 0;
  bool intrinsicsCheck = false;
  bool isNBatch = false;
  bool enVecND2NZ = false;
  bool doSpecialBasicBlock = false;
  uint32_t doMTE2Preload = 0;
  uint32_t singleCoreM = 0;
  uint32_t singleCoreN = 0;
  uint32_t singleCoreK = 0;
  uint32_t stepM = 0;
  uint32_t stepN = 0;
  uint32_t baseMN = 0;
  uint32_t singleCoreMN = 0;
  bool enUnitFlag = true;
  bool isPerTensor = false;
  bool hasAntiQuantOffset = false;
  bool doIBShareNorm = false;
  bool doSpecialMDL = false;
  bool enableInit = true;
  BatchMode batchMode = BatchMode::NONE;
  bool enableEnd = true;
  bool enableGetTensorC = true;
  bool enableSetOrgShape = true;
  bool enableSetBias = true;
  bool enableSetTail = true;
  bool enableQuantVector = true;
  bool enableSetDefineData = true;
  uint8_t iterateMode = static_cast<uint8_t>(IterateMode::ITERATE_MODE_DEFAULT);
  bool enableReuse = true;
  bool enableUBReuse = true;
  bool enableL1CacheUB = false;
  bool intraBlockPartSum = false;
  IterateOrder iterateOrder = IterateOrder::UNDEF;
  ScheduleType scheduleType = ScheduleType::INNER_PRODUCT;
  bool enableDoubleCache = false;
  bool isBiasBatch = true;
  bool enableStaticPadZeros = false;
  bool isPartialOutput = false;
  bool enableMixDualMaster = false;
  bool isA2B2Shared = false;
  bool isEnableChannelSplit = false;
  bool enableKdimReorderLoad = false;
  bool isCO1Shared = false;
  uint32_t sharedCO1BufferSize = 64 * 1024;
  BatchOutMode bmmOutMode = BatchOutMode::SINGLE_BATCH;
  bool enableL1BankConflictOptimise = false;
  bool enableRelu = false;
};

enum class MatmulConfigMode : uint8_t { CONFIG_NORM, CONFIG_MDL, CONFIG_SPECIALMDL, CONFIG_IBSHARE };

struct MatmulShapeParams {
  uint32_t singleCoreM = 0, singleCoreN = 0, singleCoreK = 0;
  uint32_t basicM = 0, basicN = 0, basicK = 0;
};
struct MatmulQuantParams {
  bool isPerTensor = false, hasAntiQuantOffset = false;
};
struct MatmulBatchParams {
  bool isNBatch = false;
  BatchMode batchMode = BatchMode::BATCH_LESS_THAN_L1;
  bool isBiasBatch = true;
  BatchOutMode bmmOutMode = BatchOutMode::SINGLE_BATCH;
};
struct MatmulFuncParams {
  bool intrinsicsLimit = false, enVecND2NZ = false, enableDoubleCache = false, enableL1CacheUB = false;
  uint32_t doMTE2Preload = 0;
  IterateOrder iterateOrder = IterateOrder::UNDEF;
  ScheduleType scheduleType = ScheduleType::INNER_PRODUCT;
  bool enableReuse = true, enableUBReuse = true;
  bool isPartialOutput = false, isA2B2Shared = false, isEnableChannelSplit = false, enableKdimReorderLoad = false;
  bool enableL1BankConflictOptimise = false;
};

constexpr MatmulConfig GetNormalConfig(bool intrinsicsLimit = false, bool batchLoop = false, bool isVecND2NZ = false,
                                       BatchMode bmmMode = BatchMode::BATCH_LESS_THAN_L1, bool /*isMsgReuse*/ = true,
                                       IterateOrder iterateOrder = IterateOrder::UNDEF,
                                       ScheduleType scheduleType = ScheduleType::INNER_PRODUCT, bool enUnitFlag = true,
                                       bool enableMixDualMaster = false,
                                       BatchOutMode bmmOutMode = BatchOutMode::SINGLE_BATCH) {
  MatmulConfig config;
  config.doNorm = true;
  config.intrinsicsCheck = intrinsicsLimit;
  config.isNBatch = batchLoop;
  config.enVecND2NZ = isVecND2NZ;
  config.batchMode = bmmMode;
  config.iterateOrder = iterateOrder;
  config.scheduleType = scheduleType;
  config.enUnitFlag = enUnitFlag;
  config.enableMixDualMaster = enableMixDualMaster;
  config.bmmOutMode = bmmOutMode;
  return config;
}

constexpr MatmulConfig GetMDLConfig(bool intrinsicsLimit = false, bool batchLoop = false, uint32_t doMTE2Preload = 0,
                                    bool isVecND2NZ = false, bool isPerTensor = false, bool hasAntiQuantOffset = false,
                                    bool enUnitFlag = false, bool /*isMsgReuse*/ = true, bool enableUBReuse = true,
                                    bool enableL1CacheUB = false, bool enableMixDualMaster = false,
                                    bool enableKdimReorderLoad = false) {
  MatmulConfig config;
  config.doMultiDataLoad = true;
  config.intrinsicsCheck = intrinsicsLimit;
  config.isNBatch = batchLoop;
  config.doMTE2Preload = doMTE2Preload;
  config.enVecND2NZ = isVecND2NZ;
  config.isPerTensor = isPerTensor;
  config.hasAntiQuantOffset = hasAntiQuantOffset;
  config.enUnitFlag = enUnitFlag;
  config.enableUBReuse = enableUBReuse;
  config.enableL1CacheUB = enableL1CacheUB;
  config.enableMixDualMaster = enableMixDualMaster;
  config.enableKdimReorderLoad = enableKdimReorderLoad;
  return config;
}

constexpr MatmulConfig GetSpecialMDLConfig(bool intrinsicsLimit = false, bool batchLoop = false,
                                           uint32_t doMTE2Preload = 0, bool isVecND2NZ = false,
                                           bool isPerTensor = false, bool hasAntiQuantOffset = false) {
  MatmulConfig config =
      GetMDLConfig(intrinsicsLimit, batchLoop, doMTE2Preload, isVecND2NZ, isPerTensor, hasAntiQuantOffset);
  config.doMultiDataLoad = false;
  config.doSpecialMDL = true;
  return config;
}

constexpr MatmulConfig GetIBShareNormConfig(bool intrinsicsLimit = false, bool batchLoop = false,
                                            bool isVecND2NZ = false, BatchMode bmmMode = BatchMode::BATCH_LESS_THAN_L1,
                                            bool isDoubleCache = false, bool enUnitFlag = true) {
  MatmulConfig config = GetNormalConfig(intrinsicsLimit, batchLoop, isVecND2NZ, bmmMode);
  config.doNorm = false;
  config.doIBShareNorm = true;
  config.enableDoubleCache = isDoubleCache;
  config.enUnitFlag = enUnitFlag;
  return config;
}

constexpr MatmulConfig GetBasicConfig(uint32_t basicM, uint32_t basicN, uint32_t basicK, bool intrinsicsLimit = false,
                                      bool batchLoop = false, BatchMode bmmMode = BatchMode::BATCH_LESS_THAN_L1) {
  MatmulConfig config = GetNormalConfig(intrinsicsLimit, batchLoop, false, bmmMode);
  config.doNorm = false;
  config.doBasicBlock = true;
  config.basicM = basicM, config.basicN = basicN, config.basicK = basicK;
  return config;
}

namespace cpu {

constexpr void apply(MatmulConfig& config, const MatmulShapeParams& params) {
  config.singleCoreM = params.singleCoreM, config.singleCoreN = params.singleCoreN;
  config.singleCoreK = params.singleCoreK;
  config.basicM = params.basicM, config.basicN = params.basicN, config.basicK = params.basicK;
}
constexpr void apply(MatmulConfig& config, const MatmulQuantParams& params) {
  config.isPerTensor = params.isPerTensor, config.hasAntiQuantOffset = params.hasAntiQuantOffset;
}
constexpr void apply(MatmulConfig& config, const MatmulBatchParams& params) {
  config.isNBatch = params.isNBatch, config.batchMode = params.batchMode, config.isBiasBatch = params.isBiasBatch;
  config.bmmOutMode = params.bmmOutMode;
}
constexpr void apply(MatmulConfig& config, const MatmulFuncParams& params) {
  config.intrinsicsCheck = params.intrinsicsLimit, config.enVecND2NZ = params.enVecND2NZ;
  config.enableDoubleCache = params.enableDoubleCache, config.enableL1CacheUB = params.enableL1CacheUB;
  config.doMTE2Preload = params.doMTE2Preload;
  config.iterateOrder = params.iterateOrder, config.scheduleType = params.scheduleType;
  config.enableReuse = params.enableReuse, config.enableUBReuse = params.enableUBReuse;
  config.isPartialOutput = params.isPartialOutput, config.isA2B2Shared = params.isA2B2Shared;
  config.isEnableChannelSplit = params.isEnableChannelSplit;
  config.enableKdimReorderLoad = params.enableKdimReorderLoad;
  config.enableL1BankConflictOptimise = params.enableL1BankConflictOptimise;
}

}  // namespace cpu

template <MatmulConfigMode mode, class... Params>
constexpr MatmulConfig GetMMConfig(Params&&... params) {
  MatmulConfig config = mode == MatmulConfigMode::CONFIG_NORM         ? GetNormalConfig()
                        : mode == MatmulConfigMode::CONFIG_MDL        ? GetMDLConfig()
                        : mode == MatmulConfigMode::CONFIG_SPECIALMDL ? GetSpecialMDLConfig()
                                                                      : GetIBShareNormConfig();
  (cpu::apply(config, params), ...);
  return config;
}

// A configuration with a tiling that is known when the kernel is compiled; what is not known is -1.
struct MatmulApiStaticTiling {
#define CANN_CPU_FIELD(name) int32_t name = -1;
  CANN_CPU_CUBE_TILING_FIELDS(CANN_CPU_FIELD)
#undef CANN_CPU_FIELD
  MatmulConfig cfg{};
};

template <class A, class B, class C, class Bias>
constexpr MatmulApiStaticTiling GetMatmulApiTiling(const MatmulConfig& config, int32_t l1Size = 512 * 1024) {
  MatmulApiStaticTiling tiling;
  tiling.cfg = config;
  const auto known = [](uint32_t size) { return size == 0 ? -1 : static_cast<int32_t>(size); };
  tiling.singleCoreM = known(config.singleCoreM), tiling.singleCoreN = known(config.singleCoreN);
  tiling.singleCoreK = known(config.singleCoreK);
  tiling.baseM = known(config.basicM), tiling.baseN = known(config.basicN), tiling.baseK = known(config.basicK);
  tiling.stepM = tiling.stepN = 1;
  if (tiling.baseM > 0 && tiling.baseN > 0 && tiling.baseK > 0 && tiling.singleCoreK > 0) {
    const int64_t bytes = int64_t{tiling.baseM + tiling.baseN} * tiling.baseK * sizeof(typename A::T);
    const int32_t blocks = (tiling.singleCoreK + tiling.baseK - 1) / tiling.baseK;
    tiling.stepKa = tiling.stepKb = matmul_tiling::blocks_in_l1(l1Size, bytes, blocks);
    tiling.depthA1 = tiling.depthB1 = 2 * tiling.stepKa;
  }
  return tiling;
}

// Functions of the author that copy blocks instead of the library: C out of CO1, A and B into A1 and B1.
template <void (*DataCopyOut)(const __gm__ void* gm, const LocalTensor<int8_t>& co1Local, const void* params,
                              const uint64_t tilingPtr, const uint64_t dataPtr),
          void (*CopyA1)(const LocalTensor<int8_t>& aMatrix, const __gm__ void* gm, int row, int col, int useM,
                         int useK, const uint64_t tilingPtr, const uint64_t dataPtr) = nullptr,
          void (*CopyB1)(const LocalTensor<int8_t>& bMatrix, const __gm__ void* gm, int row, int col, int useK,
                         int useN, const uint64_t tilingPtr, const uint64_t dataPtr) = nullptr>
struct MatmulCallBackFunc {
  static constexpr auto kCopyOut = DataCopyOut;
  static constexpr auto kCopyA = CopyA1;
  static constexpr auto kCopyB = CopyB1;
};

// The parameters of DataCopyOut for a block in CO1, as Fixpipe takes it: fractals of 16 x 16.
struct DataCopyOutParams {
  uint16_t cBurstNum = 0;  // columns of fractals
  uint16_t burstLen = 0;   // of each, in blocks of 32 bytes
  uint16_t srcStride = 0;
  uint32_t dstStride = 0;
  uint16_t oriNSize = 0;
  bool enUnitFlag = false;
  uint64_t quantScalar = 0;
  uint64_t cbufWorkspaceAddr = 0;
};

// How the device schedules its copies; the results are the same.
namespace Impl::Detail {
template <const auto&, class...>
class MatmulPolicy {};
template <const auto&, class...>
class NBuffer33MatmulPolicy {};
}  // namespace Impl::Detail

}  // namespace AscendC

// Kernels may also name them without the namespace.
using AscendC::BatchMode;
using AscendC::BatchOutMode;
using AscendC::CubeFormat;
using AscendC::IterateMode;
using AscendC::IterateOrder;
using AscendC::LayoutMode;
using AscendC::MatmulApiStaticTiling;
using AscendC::MatmulConfig;
using AscendC::MatmulConfigMode;
using AscendC::ScheduleType;

inline constexpr MatmulConfig CFG_NORM = AscendC::GetNormalConfig();
inline constexpr MatmulConfig CFG_MDL = AscendC::GetMDLConfig();
inline constexpr MatmulConfig CFG_IBSHARE_NORM = AscendC::GetIBShareNormConfig();
inline constexpr MatmulConfig MM_CFG_BB = AscendC::GetBasicConfig(0, 0, 0);
