// SPDX-License-Identifier: Apache-2.0
// Interpolation between the points of a grid.
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward.h>
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_3d_backward.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_linear1d_backward.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest1d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_nearest3d_backward.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/upsample_trilinear3d_backward.h>

#include "table.h"

using namespace cann_cpu;

namespace {

// torch_npu gives a number that is no factor where the sizes alone say the scale.
std::optional<double> scale(double factor) { return factor > 0 ? std::optional<double>(factor) : std::nullopt; }

}  // namespace

ACLNN(UpsampleNearest1d, [](In self, Ints size, Out out) { at::upsample_nearest1d_out(out, self, size); });
ACLNN(UpsampleNearest1dV2,
      [](In self, Ints size, float factor, Out out) { at::upsample_nearest1d_out(out, self, size, scale(factor)); });
ACLNN(UpsampleNearest2d, [](In self, Ints size, Out out) { at::upsample_nearest2d_out(out, self, size); });
ACLNN(UpsampleNearest2dV2, [](In self, Ints size, float height, float width, Out out) {
  at::upsample_nearest2d_out(out, self, size, scale(height), scale(width));
});

// Along one, two or three dimensions; the last four have align_corners.
#define UPSAMPLE1(Op, function)                                                                            \
  ACLNN(Op, [](In self, Ints size, double s, Out out) { at::function##_out(out, self, size, scale(s)); }); \
  UPSAMPLE1_BACKWARD(Op, function)
#define UPSAMPLE1_BACKWARD(Op, function)                                           \
  ACLNN(Op##Backward, [](In grad, Ints size, Ints input_size, double s, Out out) { \
    at::function##_backward_out(out, grad, size, input_size, scale(s));            \
  })
#define UPSAMPLE2(Op, function)                                   \
  ACLNN(Op, [](In self, Ints size, double h, double w, Out out) { \
    at::function##_out(out, self, size, scale(h), scale(w));      \
  });                                                             \
  UPSAMPLE2_BACKWARD(Op, function)
#define UPSAMPLE2_BACKWARD(Op, function)                                                     \
  ACLNN(Op##Backward, [](In grad, Ints size, Ints input_size, double h, double w, Out out) { \
    at::function##_backward_out(out, grad, size, input_size, scale(h), scale(w));            \
  })
#define UPSAMPLE3(Op, function)                                                                        \
  ACLNN(Op, [](In self, Ints size, double d, double h, double w, Out out) {                            \
    at::function##_out(out, self, size, scale(d), scale(h), scale(w));                                 \
  });                                                                                                  \
  ACLNN(Op##Backward, [](In grad, Ints size, Ints input_size, double d, double h, double w, Out out) { \
    at::function##_backward_out(out, grad, size, input_size, scale(d), scale(h), scale(w));            \
  })
#define UPSAMPLE2_ALIGNED(Op, BackwardOp, function)                                                            \
  ACLNN(Op, [](In self, Ints size, bool align_corners, double h, double w, Out out) {                          \
    at::function##_out(out, self, size, align_corners, scale(h), scale(w));                                    \
  });                                                                                                          \
  ACLNN(BackwardOp, [](In grad, Ints size, Ints input_size, bool align_corners, double h, double w, Out out) { \
    at::function##_backward_out(out, grad, size, input_size, align_corners, scale(h), scale(w));               \
  })

UPSAMPLE1_BACKWARD(UpsampleNearest1d, upsample_nearest1d);
UPSAMPLE2_BACKWARD(UpsampleNearest2d, upsample_nearest2d);
UPSAMPLE3(UpsampleNearest3d, upsample_nearest3d);
UPSAMPLE1(UpsampleNearestExact1d, _upsample_nearest_exact1d);
UPSAMPLE2(UpsampleNearestExact2d, _upsample_nearest_exact2d);
UPSAMPLE3(UpsampleNearestExact3d, _upsample_nearest_exact3d);
UPSAMPLE2_ALIGNED(UpsampleBilinear2d, UpsampleBilinear2dBackward, upsample_bilinear2d);
UPSAMPLE2_ALIGNED(UpsampleBicubic2d, UpsampleBicubic2dBackward, upsample_bicubic2d);
UPSAMPLE2_ALIGNED(UpsampleBilinear2dAA, UpsampleBilinear2dAABackward, _upsample_bilinear2d_aa);
UPSAMPLE2_ALIGNED(UpsampleBicubic2dAA, UpsampleBicubic2dAAGrad, _upsample_bicubic2d_aa);
ACLNN(UpsampleBilinear2dBackwardV2,
      [](In grad, Ints size, Ints input_size, bool align_corners, double h, double w, Out out) {
        at::upsample_bilinear2d_backward_out(out, grad, size, input_size, align_corners, scale(h), scale(w));
      });
ACLNN(UpsampleLinear1d, [](In self, Ints size, bool align_corners, double s, Out out) {
  at::upsample_linear1d_out(out, self, size, align_corners, scale(s));
});
ACLNN(UpsampleLinear1dBackward, [](In grad, Ints size, Ints input_size, bool align_corners, double s, Out out) {
  at::upsample_linear1d_backward_out(out, grad, size, input_size, align_corners, scale(s));
});
ACLNN(UpsampleTrilinear3d, [](In self, Ints size, bool align_corners, double d, double h, double w, Out out) {
  at::upsample_trilinear3d_out(out, self, size, align_corners, scale(d), scale(h), scale(w));
});
ACLNN(UpsampleTrilinear3dBackward,
      [](In grad, Ints size, Ints input_size, bool align_corners, double d, double h, double w, Out out) {
        at::upsample_trilinear3d_backward_out(out, grad, size, input_size, align_corners, scale(d), scale(h), scale(w));
      });

#define GRID_SAMPLER(Op, function)                                                                               \
  ACLNN(Op, [](In input, In grid, int64_t interpolation, int64_t padding, bool align_corners, Out out) {         \
    assign(out, at::function(input, grid, interpolation, padding, align_corners));                               \
  });                                                                                                            \
  ACLNN(Op##Backward, [](In grad, In input, In grid, int64_t interpolation, int64_t padding, bool align_corners, \
                         Bools mask, OptionalOut grad_input, OptionalOut grad_grid) {                            \
    TORCH_CHECK(mask.size() == 2, "the output mask has ", mask.size(), " elements instead of 2");                \
    auto [input_value, grid_value] =                                                                             \
        at::function##_backward(grad, input, grid, interpolation, padding, align_corners, {mask[0], mask[1]});   \
    if (mask[0]) assign(grad_input, input_value);                                                                \
    if (mask[1]) assign(grad_grid, grid_value);                                                                  \
  })

GRID_SAMPLER(GridSampler2D, grid_sampler_2d);
GRID_SAMPLER(GridSampler3D, grid_sampler_3d);

ACLNN_TYPED(AffineGrid, "theta: float32 float16 bfloat16; out: as theta",
            [](In theta, Ints size, bool align_corners, Out out) {
              assign(out, at::affine_grid_generator(in_float(theta), size, align_corners));
            });
