// SPDX-License-Identifier: Apache-2.0
// Joining, splitting, repeating, reordering and padding.
#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/reflection_pad1d_backward.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad2d_backward.h>
#include <ATen/ops/reflection_pad3d.h>
#include <ATen/ops/reflection_pad3d_backward.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/replication_pad1d_backward.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad2d_backward.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/replication_pad3d_backward.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unfold_backward.h>

#include <limits>

#include "cann_cpu/strided_slice.h"
#include "table.h"

using namespace cann_cpu;

ACLNN(Cat, [](Tensors tensors, int64_t dim, Out out) { at::cat_out(out, tensors, dim); });
ACLNN(Stack, [](Tensors tensors, int64_t dim, Out out) { at::stack_out(out, tensors, dim); });
ACLNN(SplitWithSize, [](In self, Ints sizes, int64_t dim, OutTensors out) {
  const auto parts = self.split_with_sizes(sizes, dim);
  TORCH_CHECK(parts.size() == out.size(), "splits into ", parts.size(), " parts, ", out.size(), " outputs are given");
  for (size_t i = 0; i < parts.size(); ++i) assign(out[i], parts[i]);
});
ACLNN(Repeat, [](In self, Ints repeats, Out out) { assign(out, self.repeat(repeats)); });
namespace {

// The size of the repeated tensor, along the dimension if there is one. It is checked first, since it may exceed
// memory.
int64_t checked_size(int64_t output_size, In out, std::optional<int64_t> dim = std::nullopt) {
  const int64_t size = dim ? out.size(*dim) : out.numel();
  TORCH_CHECK(output_size == size, "outputSize is ", output_size, ", the given output has ", size);
  return output_size;
}

}  // namespace

ACLNN_OF_VALUES(RepeatInterleave, [](In self, In repeats, int64_t output_size, Out out) {
  assign(out, at::repeat_interleave(self, repeats, std::nullopt, checked_size(output_size, out)));
});
ACLNN_OF_VALUES(RepeatInterleaveWithDim, [](In self, In repeats, int64_t dim, int64_t output_size, Out out) {
  assign(out, at::repeat_interleave(self, repeats, dim, checked_size(output_size, out, dim)));
});
ACLNN(RepeatInterleaveInt, [](In self, int64_t repeats, int64_t output_size, Out out) {
  assign(out, at::repeat_interleave(self, repeats, std::nullopt, checked_size(output_size, out)));
});
ACLNN(RepeatInterleaveIntWithDim, [](In self, int64_t repeats, int64_t dim, int64_t output_size, Out out) {
  assign(out, at::repeat_interleave(self, repeats, dim, checked_size(output_size, out, dim)));
});
// An optional: else ATen takes the number for the repeats of each.
ACLNN_OF_VALUES(RepeatInterleaveTensor, [](In repeats, int64_t output_size, Out out) {
  assign(out, at::repeat_interleave(repeats, std::optional<int64_t>(checked_size(output_size, out))));
});
// grad holds repeats[i] neighbours for each element i of the dimension: their sums.
ACLNN_OF_VALUES(RepeatInterleaveGrad, [](In grad, In repeats, int64_t dim, Out out) {
  const auto source = at::repeat_interleave(repeats.expand({out.size(dim)}));
  out.zero_().index_add_(dim, source, grad);
});
ACLNN(Permute, [](In self, Ints dims, Out out) { assign(out, self.permute(dims)); });
ACLNN(Flip, [](In self, Ints dims, Out out) { at::flip_out(out, self, dims); });
ACLNN(Roll, [](In self, Ints shifts, Ints dims, Out out) { assign(out, at::roll(self, shifts, dims)); });
ACLNN(ChannelShuffle, [](In self, int64_t groups, Out out) { assign(out, at::channel_shuffle(self, groups)); });
ACLNN(Im2col, [](In self, Ints kernel, Ints dilation, Ints padding, Ints stride, Out out) {
  at::im2col_out(out, self, kernel, dilation, padding, stride);
});
ACLNN(Im2colBackward, [](In self, Ints size, Ints kernel, Ints dilation, Ints padding, Ints stride, Out out) {
  at::col2im_out(out, self, size, kernel, dilation, padding, stride);
});
ACLNN(UnfoldGrad, [](In grad, Ints input_sizes, int64_t dim, int64_t size, int64_t step, Out out) {
  assign(out, at::unfold_backward(grad, input_sizes, dim, size, step));
});

ACLNN(ConstantPadNd, [](In self, Ints pad, Scalar value, Out out) { at::constant_pad_nd_out(out, self, pad, value); });

namespace {

// ATen's gradients read as many without looking, of a tensor that has as many dimensions.
Ints pairs(Ints padding, In self, size_t dims) {
  TORCH_CHECK(padding.size() == 2 * dims, "padding has ", padding.size(), " numbers; ", 2 * dims, " are expected");
  TORCH_CHECK(self.dim() == static_cast<int64_t>(dims) + 1 || self.dim() == static_cast<int64_t>(dims) + 2,
              "the padded tensor has ", self.dim(), " dimensions; ", dims + 1, " or ", dims + 2, " are expected");
  return padding;
}

}  // namespace

#define PAD(Op, function, dims)                                                                                 \
  ACLNN(Op, [](In self, Ints padding, Out out) { at::function##_out(out, self, pairs(padding, self, dims)); }); \
  ACLNN(Op##Backward, [](In grad, In self, Ints padding, Out out) {                                             \
    at::function##_backward_out(out, grad, self, pairs(padding, self, dims));                                   \
  })

PAD(ReflectionPad1d, reflection_pad1d, 1);
PAD(ReflectionPad2d, reflection_pad2d, 2);
PAD(ReflectionPad3d, reflection_pad3d, 3);
PAD(ReplicationPad1d, replication_pad1d, 1);
PAD(ReplicationPad2d, replication_pad2d, 2);
PAD(ReplicationPad3d, replication_pad3d, 3);

ACLNN_TYPED(ConfusionTranspose,
            "x: int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 bfloat16; out: as x",
            [](In x, Ints perm, Ints shape, bool transpose_first, Out out) {
              const size_t rank = transpose_first ? x.dim() : shape.size();
              TORCH_CHECK(perm.size() == rank, "perm has ", perm.size(), " elements; expected ", rank);
              TORCH_CHECK(c10::multiply_integers(shape) == x.numel(), "shape is ", shape, "; expected ", x.numel(),
                          " elements, as x has");
              assign(out, transpose_first ? x.permute(perm).reshape(shape) : x.reshape(shape).permute(perm));
            });
ACLNN_TYPED(ChunkCat, "tensors: float32 float16 bfloat16; out: float32 float16 bfloat16",
            [](Tensors tensors, int64_t dim, int64_t num_chunks, Out out) {
              TORCH_CHECK(dim == 0, "dim is ", dim, "; expected 0");
              TORCH_CHECK(num_chunks > 0, "num_chunks is ", num_chunks, "; expected more than 0");
              assign(out, at::_chunk_cat(tensors, dim, num_chunks));
            });

ACLNN(StridedSlice, [](In self, Ints begin, Ints end, Ints strides, int64_t begin_mask, int64_t end_mask,
                       int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask, Out out) {
  assign(out, strided_slice(self, begin, end, strides,
                            {begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask}));
});
