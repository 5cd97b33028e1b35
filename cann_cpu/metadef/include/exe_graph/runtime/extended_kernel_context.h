// SPDX-License-Identifier: Apache-2.0
// The common base of the contexts of inference and tiling: a call's tensors and attributes. Inputs and outputs are
// numbered as they are given: an omitted optional input has no number, and each tensor of a dynamic input has one. The
// functions named Required, Optional and Dynamic number them as the definition does.
#pragma once

#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/tensor.h"
#include "graph/ge_error_codes.h"

namespace gert {

class CANN_EXPORT ExtendedKernelContext {
 public:
  explicit ExtendedKernelContext(cann_cpu::OperatorCall* call) : call_(call), attrs_(call) {}

  const char* GetNodeType() const;
  const char* GetNodeName() const { return GetNodeType(); }
  const RuntimeAttrs* GetAttrs() const { return &attrs_; }
  size_t GetComputeNodeInputNum() const;
  size_t GetComputeNodeOutputNum() const;
  const CompileTimeTensorDesc* GetInputDesc(size_t i) const;
  const CompileTimeTensorDesc* GetRequiredInputDesc(size_t i) const { return GetDynamicInputDesc(i, 0); }
  const CompileTimeTensorDesc* GetOptionalInputDesc(size_t i) const { return GetDynamicInputDesc(i, 0); }
  const CompileTimeTensorDesc* GetDynamicInputDesc(size_t i, size_t of_it) const;
  const CompileTimeTensorDesc* GetOutputDesc(size_t i) const;

  // The node's tensors. CANN has a separate class for them, ComputeNodeInfo.
  const ExtendedKernelContext* GetComputeNodeInfo() const { return this; }
  size_t GetInputsNum() const { return GetComputeNodeInputNum(); }
  size_t GetOutputsNum() const { return GetComputeNodeOutputNum(); }
  const CompileTimeTensorDesc* GetInputTdInfo(size_t i) const { return GetInputDesc(i); }
  const CompileTimeTensorDesc* GetOutputTdInfo(size_t i) const { return GetOutputDesc(i); }

 protected:
  const Tensor* Input(size_t i) const;
  const Tensor* InputOf(size_t defined, size_t of_it) const;
  const Tensor* Output(size_t i) const;

  cann_cpu::OperatorCall* call_;

 private:
  RuntimeAttrs attrs_;
};

using ComputeNodeInfo = ExtendedKernelContext;

}  // namespace gert
