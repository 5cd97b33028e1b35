// SPDX-License-Identifier: Apache-2.0
// Prints the tilings that a host gets from Ascend C's libraries.
#include "tiling/tiling_api.h"

using namespace AscendC;

int main() {
  const platform_ascendc::PlatformAscendC& chip = *platform_ascendc::PlatformAscendCManager::GetInstance("Ascend910B3");
  const ge::Shape rows(std::vector<int64_t>{2, 3, 40});
  optiling::SoftMaxTiling softmax;
  SoftMaxTilingFunc(rows, 4, GetSoftMaxMaxTmpSize(rows, 4, false), softmax);
  printf("SoftMax %u %u %u %u\n", softmax.srcM, softmax.srcK, softmax.reduceK, softmax.srcSize);
  AscendC::tiling::SoftMaxTiling flash;
  SoftMaxFlashV2TilingFunc(rows, 2, 4, GetSoftMaxFlashV2MinTmpSize(rows, 2, 4, true), flash, true);
  printf("SoftmaxFlashV2 %u %u %u %d\n", flash.srcM, flash.srcK, flash.reduceK, IsBasicBlockInSoftMax(flash));
  optiling::LayerNormTiling layer;
  GetLayerNormNDTilingInfo(ge::Shape(std::vector<int64_t>{2, 3, 40, 37}), 1024, 4, false, layer);
  printf("LayerNorm %u %u %u %u\n", layer.bLength, layer.sLength, layer.hLength, layer.originalHLength);
  optiling::RmsNormTiling rms;
  const bool made = GetRmsNormTilingInfo(rows, ge::Shape(std::vector<int64_t>{2, 3, 37}), 1024, 4, rms);
  printf("RmsNorm %d %u %u %u %u\n", made, rms.bLength, rms.sLength, rms.hLength, rms.originalHLength);
  optiling::TopkTiling top;
  TopKTilingFunc(chip, 64, 3, 5, 4, false, TopKMode::TOPK_NORMAL, true, top);
  printf("TopK %d %d\n", top.innerDataSize, top.allDataSize);
  uint32_t most[7] = {}, least = 0;
  GetLayerNormMaxMinTmpSize(rows, 4, false, most[0], least);
  GetRmsNormMaxMinTmpSize(rows, 4, most[1], least);
  GetTopKMaxMinTmpSize(chip, 64, 3, false, false, TopKMode::TOPK_NSMALL, true, 4, most[2], least);
  GetGeluMaxMinTmpSize(rows, 4, most[3], least);
  GetTanhMaxMinTmpSize(rows, 4, false, most[4], least);
  GetCumSumMaxMinTmpSize(rows, 4, true, false, most[5], least);
  GetSumMaxMinTmpSize(64, 4, false, most[6], least);
  printf("work buffers");
  for (const uint32_t bytes : most) printf(" %u", bytes);
  uint32_t live = 1, extra = 0;
  GetTanhTmpBufferFactorSize(4, live, extra);
  printf("\nelements %u %u\nSort %u %u\n", live, extra, GetSortTmpSize(chip, 64, 4), GetConcatTmpSize(chip, 64, 4));
  char buffer[sizeof(::SoftMaxTiling)] = {};
  softmax.SaveToBuffer(buffer, sizeof(buffer));
  return softmax.GetDataSize() != sizeof(buffer) || std::memcmp(buffer, &softmax, sizeof(buffer)) != 0;
}
