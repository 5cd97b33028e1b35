// SPDX-License-Identifier: Apache-2.0
// Collectives for the other libraries of cann_cpu: how tensors are passed to them, and their order.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "acl/acl_rt.h"
#include "cann_cpu/export.h"
#include "hccl/hccl.h"

namespace cann_cpu {

inline std::optional<HcclDataType> hccl_type(at::ScalarType type) {
  static constexpr std::pair<at::ScalarType, HcclDataType> kTypes[] = {
      {at::kFloat, HCCL_DATA_TYPE_FP32},    {at::kHalf, HCCL_DATA_TYPE_FP16},     {at::kBFloat16, HCCL_DATA_TYPE_BFP16},
      {at::kDouble, HCCL_DATA_TYPE_FP64},   {at::kChar, HCCL_DATA_TYPE_INT8},     {at::kByte, HCCL_DATA_TYPE_UINT8},
      {at::kShort, HCCL_DATA_TYPE_INT16},   {at::kUInt16, HCCL_DATA_TYPE_UINT16}, {at::kInt, HCCL_DATA_TYPE_INT32},
      {at::kUInt32, HCCL_DATA_TYPE_UINT32}, {at::kLong, HCCL_DATA_TYPE_INT64},    {at::kUInt64, HCCL_DATA_TYPE_UINT64},
  };
  for (const auto& [scalar, hccl] : kTypes) {
    if (scalar == type) return hccl;
  }
  return std::nullopt;
}

// What a call that has just failed says of it.
inline const char* reason_of(HcclResult code) {
  const char* reason = aclGetRecentErrMsg();
  return reason == nullptr ? HcclGetErrorString(code) : reason;
}

// Calls enqueue(), which appends work to the stream. Collectives that this work calls while it runs take the place of
// one call, made now, among those of the communicator; they are no calls of the stream's own otherwise.
CANN_EXPORT aclError enqueue_ordered(HcclComm comm, aclrtStream stream, const std::function<aclError()>& enqueue);

// Memory that a rank has registered for others to write to: HcclCommRegister, HcclCommExchangeMem.
struct Window {
  char* data;
  uint64_t size;
};
CANN_EXPORT HcclResult find_window(HcclComm comm, uint32_t rank, Window& window);

// How long a call of the communicator may wait for other ranks; 0 means without a limit.
CANN_EXPORT HcclResult find_timeout(HcclComm comm, std::chrono::seconds& timeout);

}  // namespace cann_cpu
