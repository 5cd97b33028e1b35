// SPDX-License-Identifier: Apache-2.0
// DEVICE_IMPL_OP_OPTILING(Type).Tiling(function) registers tiling that a graph sinks to the device, where it reads
// tensors' values when the operator runs. Here tiling always runs then. The function serves an operator without
// another.
#pragma once

#include "register/op_impl_registry.h"

namespace gert {

class CANN_EXPORT DeviceOpImplRegister {
 public:
  explicit DeviceOpImplRegister(const char* type) : type_(type) {}
  DeviceOpImplRegister& Tiling(ops::TilingFunction function);

 private:
  const char* type_;
};

}  // namespace gert

#define DEVICE_IMPL_OP_OPTILING(Type)                                                       \
  static const ::gert::DeviceOpImplRegister CANN_CPU_JOIN(g_implementation_, __COUNTER__) = \
      ::gert::DeviceOpImplRegister(#Type)
