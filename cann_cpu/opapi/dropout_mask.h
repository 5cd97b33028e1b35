// SPDX-License-Identifier: Apache-2.0
// The mask of aclnnDropoutGenMask: an element is kept where its bit is set; bit i is bit i % 8 of byte i / 8.
#pragma once

#include <ATen/core/Tensor.h>

namespace cann_cpu {

// The mask of the elements of a tensor of this shape, as bool.
at::Tensor unpack_dropout_mask(const at::Tensor& mask, at::IntArrayRef shape);

}  // namespace cann_cpu
