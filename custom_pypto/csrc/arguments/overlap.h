// SPDX-License-Identifier: Apache-2.0
// overlap: whether two strided tensors share memory.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

namespace custom_pypto {

// As at::get_overlap_status, and exact for views that are not dense: Full for the same geometry, Partial for at least
// one common byte, TooHard where the search takes too long. Sizes that a tracer does not know count as no overlap.
at::MemOverlapStatus overlap(const at::Tensor& left, const at::Tensor& right);

}  // namespace custom_pypto
