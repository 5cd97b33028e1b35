// SPDX-License-Identifier: Apache-2.0
// gert::RuntimeAttrs: a call's attributes by their position in the definition; null for one that is not there.
#pragma once

#include <cstdint>

#include "cann_cpu/export.h"
#include "exe_graph/runtime/continuous_vector.h"

namespace cann_cpu {
struct OperatorCall;
}

namespace gert {

class CANN_EXPORT RuntimeAttrs {
 public:
  explicit RuntimeAttrs(const cann_cpu::OperatorCall* call) : call_(call) {}

  size_t GetAttrNum() const;
  template <class T>
  const T* GetAttrPointer(size_t i) const {
    return static_cast<const T*>(Find(i));
  }
  const int64_t* GetInt(size_t i) const { return GetAttrPointer<int64_t>(i); }
  const float* GetFloat(size_t i) const { return GetAttrPointer<float>(i); }
  const bool* GetBool(size_t i) const { return GetAttrPointer<bool>(i); }
  const char* GetStr(size_t i) const { return GetAttrPointer<char>(i); }
  const TypedContinuousVector<int64_t>* GetListInt(size_t i) const {
    return GetAttrPointer<TypedContinuousVector<int64_t>>(i);
  }
  const TypedContinuousVector<float>* GetListFloat(size_t i) const {
    return GetAttrPointer<TypedContinuousVector<float>>(i);
  }

 private:
  const void* Find(size_t i) const;

  const cann_cpu::OperatorCall* call_;
};

}  // namespace gert
