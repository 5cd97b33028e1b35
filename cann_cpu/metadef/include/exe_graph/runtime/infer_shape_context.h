// SPDX-License-Identifier: Apache-2.0
// gert::InferShapeContext: the shapes of a call's inputs, and those of its outputs, to be set.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class CANN_EXPORT InferShapeContext : public ExtendedKernelContext {
 public:
  using ExtendedKernelContext::ExtendedKernelContext;

  size_t GetInputsNum() const { return GetComputeNodeInputNum(); }
  const Shape* GetInputShape(size_t i) const { return shape_of(Input(i)); }
  const Shape* GetRequiredInputShape(size_t i) const { return shape_of(InputOf(i, 0)); }
  const Shape* GetOptionalInputShape(size_t i) const { return shape_of(InputOf(i, 0)); }
  const Shape* GetDynamicInputShape(size_t i, size_t of_it) const { return shape_of(InputOf(i, of_it)); }
  const Tensor* GetInputTensor(size_t i) const { return Input(i); }
  const Tensor* GetRequiredInputTensor(size_t i) const { return InputOf(i, 0); }
  const Tensor* GetOptionalInputTensor(size_t i) const { return InputOf(i, 0); }
  const Tensor* GetDynamicInputTensor(size_t i, size_t of_it) const { return InputOf(i, of_it); }
  Shape* GetOutputShape(size_t i);

 private:
  static const Shape* shape_of(const Tensor* tensor) { return tensor == nullptr ? nullptr : &tensor->GetOriginShape(); }
};

}  // namespace gert
