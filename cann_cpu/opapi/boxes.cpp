// SPDX-License-Identifier: Apache-2.0
// Boxes in images: how they overlap, and the pixels in them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "checks.h"
#include "table.h"

using namespace cann_cpu;

namespace {

// A box is [x0, y0, x1, y1]; the coordinates of many boxes are tensors that broadcast.
struct Boxes {
  at::Tensor x0, y0, x1, y1;

  at::Tensor area(double margin) const { return (x1 - x0 + margin) * (y1 - y0 + margin); }
};

Boxes boxes_of(In corners, int64_t dim) {
  return {corners.select(dim, 0), corners.select(dim, 1), corners.select(dim, 2), corners.select(dim, 3)};
}

at::Tensor intersection(const Boxes& a, const Boxes& b) {
  const auto width = (at::minimum(a.x1, b.x1) - at::maximum(a.x0, b.x0)).clamp_min_(0);
  return width.mul_((at::minimum(a.y1, b.y1) - at::maximum(a.y0, b.y0)).clamp_min_(0));
}

// Over the union, or over the second box alone.
at::Tensor overlap_of(const Boxes& a, const Boxes& b, double margin, Text mode) {
  const auto shared = intersection(a, b);
  const auto second = b.area(margin);
  return mode == "iof" ? shared / second : shared / (a.area(margin) + second - shared);
}

void check_mode(Text mode) {
  TORCH_CHECK(mode == "iou" || mode == "iof", "mode is '", mode, "'; expected 'iou' or 'iof'");
}

constexpr int64_t kRowsTimesColumns = int64_t{1} << 20;  // overlaps computed at a time

}  // namespace

ACLNN_TYPED_CHECKED(
    Iou, "b_boxes: float32 float16 bfloat16; gt_boxes, overlap: as b_boxes",
    [](Phase phase, In b_boxes, In gt_boxes, Text mode, float eps, bool aligned, Out overlap) {
      check_mode(mode);
      TORCH_CHECK(eps >= 0, "eps is ", eps, "; expected at least 0");
      check_rank("b_boxes", b_boxes, 2);
      check_rank("gt_boxes", gt_boxes, 2);
      check_shape("b_boxes", b_boxes, {b_boxes.size(0), 4});
      check_shape("gt_boxes", gt_boxes, {aligned ? b_boxes.size(0) : gt_boxes.size(0), 4});
      check_shape("overlap", overlap, {b_boxes.size(0), aligned ? 1 : gt_boxes.size(0)});
      if (phase == Phase::Check) return;
      const auto a = in_float(b_boxes), b = in_float(gt_boxes);
      if (aligned) {
        return assign(overlap, overlap_of(boxes_of(a, 1), boxes_of(b, 1), eps, mode).unsqueeze(1));
      }
      const Boxes columns = boxes_of(b.unsqueeze(0), 2);
      const int64_t rows = std::max<int64_t>(1, kRowsTimesColumns / std::max<int64_t>(1, b.size(0)));
      for (int64_t first = 0; first < a.size(0); first += rows) {
        const auto block = a.slice(0, first, first + rows);
        overlap.slice(0, first, first + rows).copy_(overlap_of(boxes_of(block.unsqueeze(1), 2), columns, eps, mode));
      }
    });

// The boxes are columns, [4, n]. A small number keeps the quotients finite.
ACLNN_TYPED_CHECKED(
    CIoU, "b_boxes: float32 float16; gt_boxes, overlap, atan_sub: as b_boxes",
    [](Phase phase, In b_boxes, In gt_boxes, bool trans, bool is_cross, Text mode, Out overlap, Out atan_sub) {
      TORCH_CHECK(!is_cross, "is_cross is true; expected false");
      check_mode(mode);
      check_rank("b_boxes", b_boxes, 2);
      check_shape("b_boxes", b_boxes, {4, b_boxes.size(1)});
      TORCH_CHECK(b_boxes.size(1) % 1024 == 0, "b_boxes has shape ", b_boxes.sizes(),
                  "; expected a multiple of 1024 boxes");
      check_shape("gt_boxes", gt_boxes, b_boxes.sizes());
      check_shape("overlap", overlap, {1, b_boxes.size(1)});
      check_shape("atan_sub", atan_sub, {1, b_boxes.size(1)});
      if (phase == Phase::Check) return;
      constexpr double kSmall = 1e-9;
      const auto corners = [trans](In given) {
        Boxes boxes = boxes_of(in_float(given), 0);
        if (!trans) return boxes;
        const auto half_width = boxes.x1 / 2, half_height = boxes.y1 / 2;
        return Boxes{boxes.x0 - half_width, boxes.y0 - half_height, boxes.x0 + half_width, boxes.y0 + half_height};
      };
      const Boxes a = corners(b_boxes), b = corners(gt_boxes);
      const auto shared = intersection(a, b);
      const auto ratio =
          mode == "iof" ? shared / (b.area(0) + kSmall) : shared / (a.area(0) + b.area(0) - shared + kSmall);
      const auto width = at::maximum(a.x1, b.x1) - at::minimum(a.x0, b.x0);
      const auto height = at::maximum(a.y1, b.y1) - at::minimum(a.y0, b.y0);
      const auto diagonal = width.square() + height.square() + kSmall;
      const auto distance = ((b.x0 + b.x1 - a.x0 - a.x1).square() + (b.y0 + b.y1 - a.y0 - a.y1).square()) / 4;
      const auto angle = [](const Boxes& box) { return at::atan((box.x1 - box.x0) / (box.y1 - box.y0 + kSmall)); };
      const auto difference = angle(b) - angle(a);
      const auto v = difference.square() * (4 / (std::numbers::pi * std::numbers::pi));
      assign(overlap, (ratio - distance / diagonal - v * v / (1 + kSmall - ratio + v)).unsqueeze(0));
      assign(atan_sub, difference.unsqueeze(0));
    });

namespace {

// Where a region of interest is sampled along one dimension, with the two neighbours of each point.
struct Samples {
  struct Point {
    int64_t low, high;
    float low_weight, high_weight;
  };
  int64_t per_bin;
  std::vector<Point> points;  // of all bins, one after the other; a point outside weighs nothing

  // roi_end_mode 0 takes the coordinates as they are, 1 includes the last pixel, 2 and 3 count from the pixels'
  // centres.
  Samples(float first, float last, float scale, int64_t bins, int64_t sample_num, int64_t end_mode, int64_t size) {
    const float shift = end_mode >= 2 ? 0.5F : 0.0F;
    const float begin = first * scale - shift;
    const float end = (end_mode == 1 ? last + 1 : last) * scale - shift;
    const float extent = end_mode == 2 ? end - begin : std::max(end - begin, 1.0F);
    const float bin = extent / static_cast<float>(bins);
    per_bin = sample_num > 0 ? sample_num : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bin)));
    for (int64_t i = 0; i < bins; ++i) {
      for (int64_t k = 0; k < per_bin; ++k) {
        const float step = (static_cast<float>(k) + 0.5F) / static_cast<float>(per_bin);
        points.push_back(point(begin + bin * (static_cast<float>(i) + step), size));
      }
    }
  }

 private:
  static Point point(float at, int64_t size) {
    if (!(at >= -1.0F && at <= static_cast<float>(size))) return {0, 0, 0, 0};
    const float inside = std::clamp(at, 0.0F, static_cast<float>(size - 1));
    const auto low = static_cast<int64_t>(inside);
    const float high_weight = inside - static_cast<float>(low);
    return {low, std::min(low + 1, size - 1), 1 - high_weight, high_weight};
  }
};

struct RoiAlign {
  float scale;
  int64_t height, width, sample_num, end_mode;

  void check(In rois, at::IntArrayRef image) const {
    TORCH_CHECK(image.size() == 4, "the image has shape ", image, "; expected 4 dimensions");
    check_rank("rois", rois, 2);
    check_shape("rois", rois, {rois.size(0), 5});
    TORCH_CHECK(scale > 0, "spatial_scale is ", scale, "; expected a positive number");
    check_range("pooled_height", height, 1, INT32_MAX);
    check_range("pooled_width", width, 1, INT32_MAX);
    check_range("sample_num", sample_num, 0, INT32_MAX);
    check_range("roi_end_mode", end_mode, 0, 3);
  }

  // Calls body(region, image, bin, pixel, weight) for each neighbour of each sample.
  template <class Body>
  void for_each(In rois, at::IntArrayRef image, const Body& body) const {
    const auto regions = rois.to(at::kFloat).contiguous();
    check_values("rois[:, 0]", rois.select(1, 0).to(at::kLong), 0, image[0] - 1);
    for (int64_t r = 0; r < regions.size(0); ++r) {
      const float* region = regions.const_data_ptr<float>() + r * 5;
      for (int i = 1; i < 5; ++i) {
        TORCH_CHECK(std::isfinite(region[i]), "rois[", r, ", ", i, "] is ", region[i], "; expected a finite number");
      }
      const Samples rows(region[2], region[4], scale, height, sample_num, end_mode, image[2]);
      const Samples columns(region[1], region[3], scale, width, sample_num, end_mode, image[3]);
      const float count = static_cast<float>(std::max<int64_t>(1, rows.per_bin * columns.per_bin));
      for (size_t y = 0; y < rows.points.size(); ++y) {
        for (size_t x = 0; x < columns.points.size(); ++x) {
          const auto& row = rows.points[y];
          const auto& column = columns.points[x];
          const int64_t bin =
              static_cast<int64_t>(y) / rows.per_bin * width + static_cast<int64_t>(x) / columns.per_bin;
          const auto at = static_cast<int64_t>(region[0]);
          body(r, at, bin, row.low * image[3] + column.low, row.low_weight * column.low_weight / count);
          body(r, at, bin, row.low * image[3] + column.high, row.low_weight * column.high_weight / count);
          body(r, at, bin, row.high * image[3] + column.low, row.high_weight * column.low_weight / count);
          body(r, at, bin, row.high * image[3] + column.high, row.high_weight * column.high_weight / count);
        }
      }
    }
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(ROIAlign, "self: float32 float16; rois, out: as self",
                    [](Phase phase, In self, In rois, float spatial_scale, int64_t pooled_height, int64_t pooled_width,
                       int64_t sample_num, int64_t roi_end_mode, Out out) {
                      RoiAlign{spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode}.check(
                          rois, self.sizes());
                      check_shape("out", out, {rois.size(0), self.size(1), pooled_height, pooled_width});
                      if (phase == Phase::Check) return;
                      const RoiAlign regions{spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode};
                      const auto image = self.to(at::kFloat).contiguous();
                      const auto value = at::zeros(out.sizes(), at::kFloat);
                      const int64_t channels = self.size(1), pixels = self.size(2) * self.size(3),
                                    bins = pooled_height * pooled_width;
                      const float* from = image.const_data_ptr<float>();
                      float* to = value.mutable_data_ptr<float>();
                      regions.for_each(
                          rois, self.sizes(), [&](int64_t r, int64_t n, int64_t bin, int64_t pixel, float weight) {
                            for (int64_t c = 0; c < channels; ++c) {
                              to[(r * channels + c) * bins + bin] += weight * from[(n * channels + c) * pixels + pixel];
                            }
                          });
                      assign(out, value);
                    });
ACLNN_TYPED_CHECKED(ROIAlignBackward, "self: float32 float16; rois, out: as self",
                    [](Phase phase, In self, In rois, Ints xdiff_shape, int64_t pooled_width, int64_t pooled_height,
                       float spatial_scale, int64_t sample_num, int64_t roi_end_mode, Out out) {
                      RoiAlign{spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode}.check(rois,
                                                                                                           xdiff_shape);
                      check_shape("self", self, {rois.size(0), xdiff_shape[1], pooled_height, pooled_width});
                      check_shape("out", out, xdiff_shape);
                      if (phase == Phase::Check) return;
                      const RoiAlign regions{spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode};
                      const auto grad = self.to(at::kFloat).contiguous();
                      const auto value = at::zeros(xdiff_shape, at::kFloat);
                      const int64_t channels = self.size(1), bins = pooled_height * pooled_width;
                      const int64_t pixels = xdiff_shape[2] * xdiff_shape[3];
                      const float* from = grad.const_data_ptr<float>();
                      float* to = value.mutable_data_ptr<float>();
                      regions.for_each(
                          rois, xdiff_shape, [&](int64_t r, int64_t n, int64_t bin, int64_t pixel, float weight) {
                            for (int64_t c = 0; c < channels; ++c) {
                              to[(n * channels + c) * pixels + pixel] += weight * from[(r * channels + c) * bins + bin];
                            }
                          });
                      assign(out, value);
                    });
