// SPDX-License-Identifier: Apache-2.0
// The tiling of collectives in kernels: which of them a kernel calls, and in which group. Algorithms, engines, queues
// and SetReduceType's dtypes control the transfer on an NPU, and have no effect here.
#pragma once

#include <string.h>

#include <string>

#include "tiling/library_tiling.h"

namespace AscendC {

// The functions return 0, or 1 for an invalid value.
class Mc2CcTilingConfig {
 public:
  explicit Mc2CcTilingConfig(const std::string& groupName, uint32_t opType, const std::string& algConfig,
                             uint32_t reduceType = 0, uint8_t dstDataType = 0, uint8_t srcDataType = 0,
                             uint8_t commEngine = 0)
      : group_(groupName) {
    SetOpType(opType);
    SetAlgConfig(algConfig);
    SetReduceType(reduceType, dstDataType, srcDataType);
    SetCommEngine(commEngine);
  }
  virtual ~Mc2CcTilingConfig() = default;

  uint32_t GetTiling(::Mc2InitTiling& tiling) { return given(tiling, cpu::Mc2Init{cpu::Mc2Init::kMagic}); }
  uint32_t GetTiling(::Mc2CcTiling& tiling) {
    memcpy(cc_.group, group_.c_str(), group_.size() < sizeof(cc_.group) ? group_.size() + 1 : 0);
    return given(tiling, cc_);
  }

  uint32_t SetOpType(uint32_t opType) { return cc_.command = opType, check(); }
  uint32_t SetGroupName(const std::string& groupName) { return group_ = groupName, check(); }
  uint32_t SetAlgConfig(const std::string& algConfig) { return algorithm_bytes_ = algConfig.size(), check(); }
  uint32_t SetReduceType(uint32_t reduceType, uint8_t /*dstDataType*/ = 0, uint8_t /*srcDataType*/ = 0) {
    return reduceType > static_cast<uint32_t>(HCCL_REDUCE_RESERVED);
  }
  uint32_t SetStepSize(uint8_t stepSize) { return cc_.step_size = stepSize, 0; }
  uint32_t SetSkipLocalRankCopy(uint8_t skipLocalRankCopy) {
    if (skipLocalRankCopy > 1) return 1;
    return cc_.skip_local_copy = skipLocalRankCopy, 0;
  }
  uint32_t SetSkipBufferWindowCopy(uint8_t skipBufferWindowCopy) {
    if (skipBufferWindowCopy > 2) return 1;
    return cc_.skip_window_copy = skipBufferWindowCopy, 0;
  }
  uint32_t SetDebugMode(uint8_t debugMode) { return cc_.debug_mode = debugMode, 0; }
  uint32_t SetQueueNum(uint16_t /*num*/) { return 0; }
  uint32_t SetCommBlockNum(uint16_t /*num*/) { return 0; }
  uint32_t SetCommEngine(uint8_t /*commEngine*/) { return 0; }

 private:
  uint32_t check() const {
    return cc_.command == 0 || cc_.command >= static_cast<uint32_t>(HcclCMDType::HCCL_CMD_ALL) || group_.empty() ||
           group_.size() >= sizeof(cc_.group) || algorithm_bytes_ > sizeof(cc_.group);
  }

  template <class Tiling, class Content>
  uint32_t given(Tiling& tiling, const Content& content) const {
    static_assert(sizeof(content) <= sizeof(tiling.reserved), "the reserved bytes are too few");
    if (check() != 0) return 1;
    memset(tiling.reserved, 0, sizeof(tiling.reserved));
    memcpy(tiling.reserved, &content, sizeof(content));
    return 0;
  }

  std::string group_;
  size_t algorithm_bytes_ = 0;
  cpu::Mc2Cc cc_ = {cpu::Mc2Cc::kMagic, 0, 0, 0, 0, 0, {}};
};

}  // namespace AscendC
