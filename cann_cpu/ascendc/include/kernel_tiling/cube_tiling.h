// SPDX-License-Identifier: Apache-2.0
// TCubeTiling, the tiling of the Matmul library, for the host and for kernels: C++11.
#pragma once

#include <stdint.h>

// Its fields, all of type int32_t. By name as published; those that are reserved there say what GetTiling has used
// (shareL1Size, shareL0CSize, shareUbSize) or are 0.
#define CANN_CPU_CUBE_TILING_FIELDS(field)                                                                           \
  field(usedCoreNum) field(M) field(N) field(Ka) field(Kb) field(singleCoreM) field(singleCoreN) field(singleCoreK)  \
      field(baseM) field(baseN) field(baseK) field(depthA1) field(depthB1) field(stepM) field(stepN) field(isBias)   \
          field(transLength) field(iterateOrder) field(shareMode) field(shareL1Size) field(shareL0CSize)             \
              field(shareUbSize) field(batchM) field(batchN) field(singleBatchM) field(singleBatchN) field(stepKa)   \
                  field(stepKb) field(depthAL1CacheUB) field(depthBL1CacheUB) field(dbL0A) field(dbL0B) field(dbL0C) \
                      field(ALayoutInfoB) field(ALayoutInfoS) field(ALayoutInfoN) field(ALayoutInfoG)                \
                          field(ALayoutInfoD) field(BLayoutInfoB) field(BLayoutInfoS) field(BLayoutInfoN)            \
                              field(BLayoutInfoG) field(BLayoutInfoD) field(CLayoutInfoB) field(CLayoutInfoS1)       \
                                  field(CLayoutInfoN) field(CLayoutInfoG) field(CLayoutInfoS2) field(BatchNum)       \
                                      field(mxTypePara)

namespace AscendC {
namespace tiling {

struct TCubeTiling {
#define CANN_CPU_FIELD(name) int32_t name = 0;
  CANN_CPU_CUBE_TILING_FIELDS(CANN_CPU_FIELD)
#undef CANN_CPU_FIELD
};

}  // namespace tiling
}  // namespace AscendC

using AscendC::tiling::TCubeTiling;

namespace matmul_tiling {

// How many blocks along K lie in L1 at a time, of `bytes` for both matrices and for each of two buffers.
constexpr int32_t blocks_in_l1(int64_t l1_bytes, int64_t bytes, int32_t blocks) {
  return l1_bytes / (2 * bytes) < 1        ? 1
         : l1_bytes / (2 * bytes) < blocks ? static_cast<int32_t>(l1_bytes / (2 * bytes))
                                           : blocks;
}

}  // namespace matmul_tiling
