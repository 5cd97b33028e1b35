// SPDX-License-Identifier: Apache-2.0
// The structs of the libraries' tilings. The host also includes them, so they are C++11 and need nothing of kernels.
#pragma once

#include <stdint.h>

#include "ascendc/hccl_names.h"
#include "kernel_tiling/cube_tiling.h"

namespace AscendC {

constexpr int32_t BLOCK_CUBE = 16;  // rows and columns of a fractal

}  // namespace AscendC

struct SoftMaxTiling {
  uint32_t srcM = 0, srcK = 0, srcSize = 0;
  uint32_t outMaxM = 0, outMaxK = 0, outMaxSize = 0;
  uint32_t splitM = 0, splitK = 0, splitSize = 0;
  uint32_t reduceM = 0, reduceK = 0, reduceSize = 0;
  uint32_t rangeM = 0, tailM = 0, tailSplitSize = 0, tailReduceSize = 0;
};

struct LogSoftMaxTiling : SoftMaxTiling {};

struct LayerNormTiling {
  uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0;
  uint32_t inputXSize = 0, meanVarSize = 0, numberOfTmpBuf = 0;
  uint32_t meanTmpTensorPos = 0, meanTmpTensorSize = 0, varianceTmpTensorPos = 0, varianceTmpTensorSize = 0;
  uint32_t tmpBufSize = 0, oneTmpSize = 0, firstTmpStartPos = 0, secondTmpStartPos = 0, thirdTmpStartPos = 0;
  uint32_t loopRound = 0, inputRoundSize = 0, inputTailSize = 0, inputTailPos = 0;
  uint32_t meanVarRoundSize = 0, meanVarTailSize = 0, meanVarTailPos = 0, bshCurLength = 0;
  float lastDimValueBack = 0;
};

struct RmsNormTiling {
  uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0;
  float reciprocalOfHLength = 0;
  uint32_t mainBshLength = 0, mainBsLength = 0, mainBsLengthAlign = 0;
  uint32_t loopRound = 0, inputTailPos = 0, tailBshLength = 0, tailBsLength = 0;
};

struct PadTiling {
  uint32_t srcHeight = 0, srcWidth = 0, srcOriWidth = 0, widthWithoutLastBlock = 0, blocksPerRow = 0;
  uint32_t heightTiling = 0, heightFractal = 0, heightFractalTail = 0, mainLoopOffset = 0, tailBlockOffset = 0;
  uint32_t tmpBuffer1BlockNum = 0, tmpBuffer1RowNum = 0, tmpBuffer2Offset = 0;
  uint32_t widthTiling = 0, widthFractal = 0, widthFractalTail = 0, widthFractalTailAlingned = 0;
  uint32_t brcbTiling = 0, brcbFractal = 0, brcbFractalTail = 0;
  uint32_t maxRepeatTimes = 0, brcbTilingRepeatTimes = 0, brcbTilingRepeatTimesTail = 0;
};

struct UnPadTiling {
  uint32_t srcHeight = 0, srcWidth = 0;
  uint32_t tmpBuffer1BlockNum = 0, tmpBuffer1RowNum = 0, tmpBuffer2Offset = 0;
  uint32_t widthTiling = 0, widthFractal = 0, widthFractalTail = 0;
};

// The tiling of ConfusionTranspose, which is not implemented. Kernels name the struct without calling the function.
struct ConfusionTransposeTiling {
  uint32_t param0 = 0, param1 = 0, param2 = 0, param3 = 0, param4 = 0, param5 = 0, param6 = 0, param7 = 0, param8 = 0;
  uint32_t param9 = 0, param10 = 0, param11 = 0, param12 = 0, param13 = 0, param14 = 0, param15 = 0, param16 = 0;
  uint32_t param17 = 0;
};

struct TopkTiling {
  int32_t tmpLocalSize = 0, allDataSize = 0, innerDataSize = 0;
  uint32_t sortRepeat = 0;
  int32_t mrgSortRepeat = 0, kAlignFourBytes = 0, kAlignTwoBytes = 0, maskOffset = 0;
  int32_t maskVreducev2FourBytes = 0, maskVreducev2TwoBytes = 0;
  int32_t mrgSortSrc1offset = 0, mrgSortSrc2offset = 0, mrgSortSrc3offset = 0, mrgSortTwoQueueSrc1Offset = 0;
  int32_t mrgFourQueueTailPara1 = 0, mrgFourQueueTailPara2 = 0, srcIndexOffset = 0;
  uint32_t copyUbToUbBlockCount = 0;
  int32_t topkMrgSrc1MaskSizeOffset = 0, topkNSmallSrcIndexOffset = 0;
};
