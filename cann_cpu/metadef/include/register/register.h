// SPDX-License-Identifier: Apache-2.0
// Parsers of other frameworks' models, which plug-ins of operator packages register. Nothing here reads such models:
// they compile, and what they register is not used.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "graph/operator.h"

namespace domi {

using Status = uint32_t;
constexpr Status SUCCESS = 0;
constexpr Status FAILED = 0xFFFFFFFF;
enum FrameworkType { CAFFE = 0, MINDSPORE = 1, TENSORFLOW = 3, ANDROID_NN = 4, ONNX = 5 };
enum class ImplyType : unsigned int { BUILDIN = 0, TVM, CUSTOM, AI_CPU, CCE, GELOCAL, HCCL, INVALID = 0xFFFFFFFF };

inline Status AutoMappingByOpFn(const ge::Operator&, ge::Operator&) { return SUCCESS; }

class OpRegistrationData {
 public:
  explicit OpRegistrationData(const char*) {}
  OpRegistrationData& FrameworkType(domi::FrameworkType) { return *this; }
  OpRegistrationData& OriginOpType(const char*) { return *this; }
  OpRegistrationData& OriginOpType(const std::initializer_list<const char*>&) { return *this; }
  OpRegistrationData& OriginOpType(const std::vector<ge::AscendString>&) { return *this; }
  OpRegistrationData& ParseParamsByOperatorFn(const std::function<Status(const ge::Operator&, ge::Operator&)>&) {
    return *this;
  }
  OpRegistrationData& ImplyType(domi::ImplyType) { return *this; }
};

}  // namespace domi

#define REGISTER_CUSTOM_OP(name) \
  static const ::domi::OpRegistrationData g_registered_parser = ::domi::OpRegistrationData(name)
