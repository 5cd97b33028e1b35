// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings: pairs of numbers, turned by an angle.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "table.h"

using namespace cann_cpu;

namespace {

enum Mode : int64_t { kHalf, kInterleave, kQuarter, kInterleaveHalf };

at::Tensor half_turned(const at::Tensor& x, int64_t sign) {
  const auto parts = x.chunk(2, -1);
  return at::cat({parts[1] * at::Scalar(-sign), parts[0] * at::Scalar(sign)}, -1);
}

// What is added to x times the sine: the other of each pair, the first with a minus. With sign -1 the inverse.
at::Tensor turned(const at::Tensor& x, int64_t mode, int64_t sign = 1) {
  switch (mode) {
    case kHalf:
    case kInterleaveHalf:  // of numbers that are ordered already
      return half_turned(x, sign);
    case kInterleave: {
      const auto pairs = x.unflatten(-1, {-1, 2});
      return half_turned(pairs, sign).flatten(-2);
    }
    case kQuarter: {
      const auto halves = x.chunk(2, -1);
      return at::cat({half_turned(halves[0], sign), half_turned(halves[1], sign)}, -1);
    }
    default:
      TORCH_CHECK(false, "mode must be 0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half), got ", mode);
  }
}

// Interleave-half turns the even numbers and the odd ones as two halves.
at::Tensor ordered(const at::Tensor& x, int64_t mode) {
  return mode == kInterleaveHalf ? x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : x;
}
at::Tensor reordered(const at::Tensor& x, int64_t mode) {
  return mode == kInterleaveHalf ? x.unflatten(-1, {2, -1}).transpose(-1, -2).flatten(-2) : x;
}

void check_size(const at::Tensor& x, int64_t mode) {
  const int64_t divisor = mode == kQuarter ? 4 : 2;
  TORCH_CHECK(x.dim() > 0 && x.size(-1) % divisor == 0, "the last dimension must divide by ", divisor, ", got shape ",
              x.sizes());
}

}  // namespace

ACLNN(RotaryPositionEmbedding, [](In self, In cosine, In sine, int64_t mode, Out out) {
  check_size(self, mode);
  const auto x = ordered(in_float(self), mode);
  assign(out, x * cosine + turned(x, mode) * sine);
});
// Without x, the gradients of the sine and the cosine are not asked for.
ACLNN(RotaryPositionEmbeddingGrad, [](In grad, In cosine, In sine, OptionalIn self, int64_t mode, Out grad_self,
                                      OptionalOut grad_cosine, OptionalOut grad_sine) {
  check_size(grad, mode);
  const auto dy = in_float(grad);
  assign(grad_self, reordered(dy * cosine + turned(dy * sine, mode, -1), mode));
  if (!self.has_value()) return;
  const auto x = ordered(in_float(*self), mode);
  assign(grad_cosine, (dy * x).sum_to_size(cosine.sizes()));
  assign(grad_sine, (dy * turned(x, mode)).sum_to_size(sine.sizes()));
});
