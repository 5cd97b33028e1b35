// SPDX-License-Identifier: Apache-2.0
// A call's inputs and outputs, in torchair's two forms (gert::Tensor and ge::Tensor), as ATen tensors and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "acl/acl_base.h"
#include "cann_cpu/stored_tensor.h"
#include "ge/ge_allocator.h"
#include "gert_tensor.h"
#include "graph/tensor.h"

namespace cann_cpu::graph {

// An input: a view of device memory, or a copy of host memory, which the caller may free when the call returns.
StoredTensor bind_input(const gert::Tensor& tensor);
StoredTensor bind_input(const ge::Tensor& tensor);

// An output's memory, or an undefined tensor when the engine has to allocate it. Outputs are in ND.
at::Tensor bind_output(const gert::Tensor& tensor);
at::Tensor bind_output(const ge::Tensor& tensor);

// Has the stream copy a result to a block of the allocator, and hands that over.
void allocate_output(const at::Tensor& result, ge::Allocator& allocator, aclrtStream stream, gert::Tensor& output);
void allocate_output(const at::Tensor& result, ge::Allocator& allocator, aclrtStream stream, ge::Tensor& output);
// Tells the caller of an output in memory that it owns.
void share_output(const at::Tensor& memory, gert::Tensor& output);
void share_output(const at::Tensor& memory, ge::Tensor& output);
// Copies a result to host memory that the tensor owns.
void host_output(const at::Tensor& result, ge::Tensor& output);

}  // namespace cann_cpu::graph
