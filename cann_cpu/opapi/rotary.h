// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings: pairs of numbers, turned by an angle.
#pragma once

#include "table.h"

namespace cann_cpu {

// Which numbers of the last dimension are pairs. In place: half i with i + size / 2, interleave 2i with 2i + 1, quarter
// halves within each half. Interleave-half turns the pairs of interleave, and orders its result as half does.
enum class Pairs : int64_t { Half, Interleave, Quarter, InterleaveHalf };

// The pairs that a function's number stands for, where x can be divided so.
Pairs pairs_of(int64_t mode, In x);

// x turned by the angles of cosine and sine, which are broadcast to it. Half types are turned, and returned, in float.
CANN_EXPORT at::Tensor rotated(In x, In cosine, In sine, Pairs pairs);

}  // namespace cann_cpu
