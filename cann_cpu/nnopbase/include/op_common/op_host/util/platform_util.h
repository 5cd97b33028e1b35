// SPDX-License-Identifier: Apache-2.0
// The chip as functions of tiling ask for it, by their context.
#pragma once

#include "exe_graph/runtime/tiling_context.h"
#include "tiling/platform/platform_ascendc.h"

namespace Ops::Base {

template <class Context>
uint32_t GetAivCoreNum(const Context* context) {
  return platform_ascendc::PlatformAscendC(context->GetPlatformInfo()).GetCoreNumAiv();
}
template <class Context>
uint32_t GetAicCoreNum(const Context* context) {
  return platform_ascendc::PlatformAscendC(context->GetPlatformInfo()).GetCoreNumAic();
}
template <class Context>
uint64_t GetUbSize(const Context* context) {
  uint64_t bytes = 0;
  platform_ascendc::PlatformAscendC(context->GetPlatformInfo())
      .GetCoreMemSize(platform_ascendc::CoreMemType::UB, bytes);
  return bytes;
}
template <class Context>
uint32_t GetUbBlockSize(const Context* /*context*/) {
  return 32;
}
template <class Context>
uint32_t GetWorkspaceSize(const Context* context) {
  return platform_ascendc::PlatformAscendC(context->GetPlatformInfo()).GetLibApiWorkSpaceSize();
}

}  // namespace Ops::Base
