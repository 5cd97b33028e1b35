// SPDX-License-Identifier: Apache-2.0
// gert::InferDataTypeContext: the dtypes of a call's inputs, and those of its outputs, to be set.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class CANN_EXPORT InferDataTypeContext : public ExtendedKernelContext {
 public:
  using ExtendedKernelContext::ExtendedKernelContext;

  ge::DataType GetInputDataType(size_t i) const { return type_of(Input(i)); }
  ge::DataType GetRequiredInputDataType(size_t i) const { return type_of(InputOf(i, 0)); }
  ge::DataType GetOptionalInputDataType(size_t i) const { return type_of(InputOf(i, 0)); }
  ge::DataType GetDynamicInputDataType(size_t i, size_t of_it) const { return type_of(InputOf(i, of_it)); }
  ge::DataType GetOutputDataType(size_t i) const;
  ge::graphStatus SetOutputDataType(size_t i, ge::DataType type);

 private:
  static ge::DataType type_of(const Tensor* tensor) {
    return tensor == nullptr ? ge::DT_UNDEFINED : tensor->GetDataType();
  }
};

}  // namespace gert
